"""Run a recipe: `python launcher.py --conf exp/NAME.yaml [--with-bfcl] [-- key=value ...]`.

`python launcher.py doctor [--conf exp/NAME.yaml]` says whether it can run here. The
same commands are `seal train` and `seal doctor`; `--help` lists the options.
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
    arguments = sys.argv[1:]
    if arguments[:1] == ["doctor"]:
        return execute(load("doctor"), arguments[1:], "launcher.py doctor")
    return execute(load("train"), arguments, "launcher.py")


if __name__ == "__main__":
    sys.exit(main())
