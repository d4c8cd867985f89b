"""The service of a replay: started for it, with the synthesised tasks that it needs."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from env_service.client import ServiceClient, ServiceError
from env_service.local_service import local_service


@contextmanager
def service(tasks: Sequence[Mapping[str, Any]], workers: int | None) -> Iterator[str]:
    """The address of a service with these tasks; ValueError if it cannot be started or refuses a task.

    workers: the number of processes that play, by default one per core.
    """
    with ExitStack() as stack:
        try:
            url = stack.enter_context(local_service(BFCL_WORKERS=str(workers or os.cpu_count() or 1)))
            with ServiceClient(url) as client:
                for start in range(0, len(tasks), 200):  # the service limits the body of a request
                    client.add_tasks(tasks[start : start + 200])
        except ServiceError as error:
            raise ValueError(str(error)) from error
        yield url
