"""Shared by the attacks: a service with short deadlines, and a run whose logs may be damaged."""

import shutil
from pathlib import Path

import pytest

from env_service.local_service import local_service
from tests.support.played_run import SMALL, write_run


def pytest_collection_modifyitems(items):
    """Every attack is slow."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def url():
    """The address of a service with two workers."""
    with local_service(BFCL_WORKERS="2", BFCL_CALL_SECONDS="1", BFCL_MAX_BODY_BYTES="100000") as address:
        yield address


@pytest.fixture(scope="session")
def played(tmp_path_factory) -> Path:
    """A run of two steps; do not change it, see `run`."""
    return write_run(tmp_path_factory.mktemp("runs") / "whole", *SMALL, steps=2, validations=(0, 2), seed=4)


@pytest.fixture
def run(played, tmp_path) -> Path:
    """A copy of the run that a test may change."""
    return Path(shutil.copytree(played, tmp_path / "damaged", ignore=shutil.ignore_patterns("view_index*")))
