"""Start the service: `python -m env_service`, with the settings of the BFCL_* variables.

`seal serve` does the same and takes the settings as options too.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from env_service.server import listen, serve
from env_service.settings import read_settings


def main(**options: Any) -> int:
    """Serve until interrupted; 1, with one sentence on stderr, when the service cannot start.

    options: settings that take precedence over their variables (`ServerSettings`).
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = read_settings(**options)
        listener = listen(settings)
    except (RuntimeError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    serve(settings, listener)
    return 0


if __name__ == "__main__":
    sys.exit(main())
