"""Shared by the attacks: a service with short deadlines, and a run whose logs may be damaged."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from env_service.local_service import local_service
from shelf.lab.certificate.collect import records
from shelf.lab.certificate.file import read, write
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


@pytest.fixture(scope="session")
def contents(played) -> list[tuple[str, Any]]:
    """The records of the run's certificate, played/whole.seal.gz."""
    path = played / "whole.seal.gz"
    write(records(played), path)
    return [(record.kind, record.value) for record in read(path)]


@pytest.fixture
def run(played, tmp_path) -> Path:
    """A copy of the run that a test may change."""
    return Path(shutil.copytree(played, tmp_path / "damaged", ignore=shutil.ignore_patterns("view_index*")))
