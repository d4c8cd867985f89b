#!/usr/bin/env bash
# Set up only the BFCL environment service, without torch or verl:
#   bash env_service/environments/bfcl/setup.sh
# If conda is found it makes (or reuses) a conda environment named bfcl, else a
# virtual environment in .service_venv beside this file; then it writes
# bfcl_data/multi_turn_processed.jsonl and the hash of the data it was made from.
#   PYTHON      interpreter for the virtual environment, 3.11 or 3.12 (default: python3)
#   BFCL_CONDA  0: do not use conda even if it is found
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../../.." && pwd)"
bfcl_eval="bfcl-eval==2026.3.23"

if [[ "${BFCL_CONDA:-1}" != 0 ]] && command -v conda >/dev/null; then
    conda env list | grep -qE '^bfcl[[:space:]]' || conda create --yes --quiet --name bfcl python=3.11
    python="$(conda run --name bfcl python -c 'import sys; print(sys.executable)')"
else
    base="${PYTHON:-python3}"
    if ! "$base" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))'; then
        echo "setup.sh: needs Python 3.11 or 3.12; name one: PYTHON=/path/to/python3.11 bash $0" >&2
        exit 1
    fi
    [[ -x "$here/.service_venv/bin/python" ]] || "$base" -m venv "$here/.service_venv"
    python="$here/.service_venv/bin/python"
fi

"$python" -m pip install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps "$bfcl_eval"
PYTHONPATH="$root" "$python" -m env_service.environments.bfcl.processed "$here/bfcl_data"
echo "The service is ready: bash env_service/launch_script/bfcl.sh"
