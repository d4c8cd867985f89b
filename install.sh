#!/usr/bin/env bash
# Sets SEAL up in .venv beside this file.
#   bash install.sh --cpu     the CPU path: no GPU, no account, some minutes
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { printf '%s\n' "$*"; }
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

target=${1:-}
[ "$target" = "--cpu" ] || fail "pass --cpu; the CUDA lock (requirements.txt) is not part of this version."

find_python() {
  for name in "${PYTHON:-}" python3.11 python3.12 python3; do
    [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 || continue
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
      printf '%s' "$name"
      return
    fi
  done
}
python=$(find_python)
[ -n "$python" ] || fail "needs Python 3.11 or 3.12; install one, or name it: PYTHON=/path/to/python3.11 bash install.sh --cpu"

free_kb=$(df -Pk . | awk 'NR == 2 {print $4}')
[ "$free_kb" -gt 6000000 ] || fail "needs 6 GB free here and has $((free_kb / 1000000)) GB."

say "python: $("$python" --version)"
[ -x .venv/bin/python ] || "$python" -m venv .venv
pip() { .venv/bin/python -m pip --disable-pip-version-check --quiet --quiet "$@"; }

torch=$(grep -E '^torch==' requirements-cpu.txt)
if ! .venv/bin/python -c "import importlib.metadata as m, sys; sys.exit('torch==' + m.version('torch') != '$torch')" 2>/dev/null; then
  say "installing $torch"
  # The CPU build has a local version that only some indexes carry; PyTorch's own always does.
  pip install --no-deps "$torch" 2>/dev/null ||
    pip install --no-deps --index-url https://download.pytorch.org/whl/cpu "$torch" ||
    fail "could not install $torch; is the network up?"
fi
say "installing the locked requirements"
grep -v -E '^torch==' requirements-cpu.txt > .venv/requirements.txt
# The lock is complete and holds nothing that fails to import beside the CPU build of torch, so no resolution is wanted.
pip install --no-deps -r .venv/requirements.txt
pip uninstall --yes torchvision torchaudio torchcodec triton 2>/dev/null || true
pip install --no-deps --no-build-isolation ./seal/backends/vllm_alias
pip install --no-deps --no-build-isolation --editable .

.venv/bin/python -m seal.data prepare
.venv/bin/python -W ignore -m seal.launch.selfcheck
