"""One service for all commands of a test file that would start their own (`shelf.replay.service`)."""

from contextlib import contextmanager, nullcontext

import pytest

from env_service.local_service import local_service


@contextmanager
def one_service():
    """Commands on runs without made tasks share a service; those of other files start theirs."""

    def shared(tasks, workers):
        assert not tasks
        return nullcontext(url)

    with local_service(BFCL_WORKERS="1") as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr("shelf.replay.service.service", shared)
        yield
