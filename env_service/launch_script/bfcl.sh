#!/usr/bin/env bash
# Start the environment service in the foreground.
#   BFCL_HOST, BFCL_PORT (127.0.0.1:8082), BFCL_WORKERS; further limits: docs/operate.md.
# Runs $PYTHON if it is set; else what setup.sh made (.service_venv, or the conda
# environment bfcl), else this repository's .venv, else python3.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
own="$root/env_service/environments/bfcl/.service_venv/bin/python"
if [[ -n "${PYTHON:-}" ]]; then
    python="$PYTHON"
elif [[ -x "$own" ]]; then
    python="$own"
elif command -v conda >/dev/null && conda env list | grep -qE '^bfcl[[:space:]]'; then
    python="$(conda run --name bfcl python -c 'import sys; print(sys.executable)')"
elif [[ -x "$root/.venv/bin/python" ]]; then
    python="$root/.venv/bin/python"
else
    python="python3"
fi
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m env_service
