"""A small run, and its certificate."""

import pytest

from env_service.local_service import local_service
from shelf.lab.certificate.collect import records
from shelf.lab.certificate.file import read, write
from tests.support.played_run import SMALL, write_run


@pytest.fixture(scope="session")
def url():
    with local_service(BFCL_WORKERS="2") as address:
        yield address


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "small"
    return write_run(folder, *SMALL, steps=2, validations=(0, 2), seed=4, late=0.08, lost=0.25)


@pytest.fixture(scope="session")
def certificate(run):
    """The path of the small run's certificate, which nobody changes."""
    path = run / "small.seal.gz"
    write(records(run), path)
    return path


@pytest.fixture(scope="session")
def contents(certificate):
    """The small certificate's records, as pairs of kind and value."""
    return Contents((record.kind, record.value) for record in read(certificate))


class Contents(list):
    """Too long to be shown when a test fails."""

    def __repr__(self) -> str:
        return f"{len(self)} records"
