"""A service, and a small run that nobody changes."""

import pytest

from env_service.local_service import local_service
from tests.support.played_run import SMALL, write_run


@pytest.fixture(scope="session")
def url():
    with local_service(BFCL_WORKERS="2") as address:
        yield address


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "small"
    return write_run(folder, *SMALL, steps=2, validations=(0, 2), seed=4, late=0.08, lost=0.25)
