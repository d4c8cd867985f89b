"""Run a recipe: `python launcher.py --conf exp/NAME.yaml [--with-service] [-- key=value ...]`.

`seal train exp/NAME.yaml` is the same command; `--help` lists the options.
"""

import sys

try:
    import dotenv  # noqa: F401
    import rich  # noqa: F401
    import typer  # noqa: F401
except ImportError:
    sys.exit(
        f"{sys.executable} lacks SEAL's packages: activate the environment (`source .venv/bin/activate` or "
        "`conda activate seal`), or make one (`bash install.sh`, without a GPU `bash install.sh --cpu`)."
    )

from seal.cli.main import execute, load


def main() -> int:
    """Run the launcher; returns the exit code (seal.system.exits)."""
    return execute(load("train"), sys.argv[1:], "launcher.py")


if __name__ == "__main__":
    sys.exit(main())
