"""The command `seal-mcp`: one process, one session, one episode."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import anyio

from env_service.client import ServiceClient, ServiceError
from env_service.local_service import address
from seal_mcp.episode import episode
from seal_mcp.server import serve


def main() -> int:
    """Serve one episode; 1, with one sentence on stderr, if it cannot be opened."""
    parser = argparse.ArgumentParser(prog="seal-mcp", description="Serve one episode of SEAL over MCP (stdio).")
    parser.add_argument("--task", required=True, metavar="ID", help="the task to play")
    parser.add_argument("--environment", default="bfcl", help="the service's environment (bfcl)")
    parser.add_argument("--split", default="train", help="train, or val for the official pipeline to the letter")
    parser.add_argument("--params", default="{}", metavar="JSON", help='further params of /create: {"turns": 1}')
    parser.add_argument("--url", help="the service; by default SEAL_URL's, else one is started here")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the result here when the client leaves")
    options = parser.parse_args()
    try:
        params = {"split": options.split, **_params(options.params)}
        if options.out:
            options.out.write_text("")  # an earlier result does not belong to this episode
        with (
            ServiceClient(address(options.url), options.environment) as service,
            episode(service, options.task, params) as played,
        ):
            anyio.run(serve, played)
            if options.out:
                options.out.write_text(json.dumps(played.result()) + "\n")
    except (ServiceError, ValueError, OSError) as error:
        sys.stderr.write(f"seal-mcp: {error}\n")
        return 1
    return 0


def _params(text: str) -> dict[str, Any]:
    try:
        params = json.loads(text)
    except ValueError:
        params = None
    if not isinstance(params, dict):
        raise ValueError(f'--params is {text!r}: write a JSON object, as {{"turns": 1}}.')
    return params


if __name__ == "__main__":
    sys.exit(main())
