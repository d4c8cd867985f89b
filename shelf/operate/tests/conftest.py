"""What takes long to find out about this installation, found out once."""

import pytest

from seal.launch.devices import run_python


@pytest.fixture(scope="session")
def selfchecked():
    """A finished `python -m shelf.operate.selfcheck`."""
    return run_python("-W", "ignore", "-m", "shelf.operate.selfcheck", timeout=600)
