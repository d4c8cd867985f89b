#!/usr/bin/env bash
# Start the BFCL environment service in the foreground.
#   BFCL_HOST, BFCL_PORT (127.0.0.1:8082), BFCL_WORKERS; further limits: docs/service.md.
# Uses the service's own virtual environment where setup.sh made one, else $PYTHON or python3.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
own="$root/env_service/environments/bfcl/.venv/bin/python"
if [[ -z "${PYTHON:-}" ]]; then
    if [[ -x "$own" ]]; then PYTHON="$own"; else PYTHON="$(command -v python3)"; fi
fi
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$PYTHON" -m env_service
