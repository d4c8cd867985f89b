"""Play given assistant messages over HTTP."""

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.service.client import Connection
from tests.env_service.bfcl_perturbations import Cut


async def play(
    connection: Connection,
    name: str,
    task_id: str,
    texts: Sequence[Sequence[str]],
    params: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Create, step through the messages and then "Done." until the end, evaluate, release; the evaluation.

    A :class:`Cut` is sent that a length limit cut.
    """
    await connection.verb("create", {"task_id": task_id, "instance_id": name, "params": params or {}})
    for text in itertools.chain((text for turn in texts for text in turn), itertools.repeat("Done.")):
        body = {"instance_id": name, "messages": {"role": "assistant", "content": text}}
        answer = await connection.verb("step", {**body, "truncated": isinstance(text, Cut)})
        if answer["is_terminated"]:
            break
    result = await connection.verb("evaluate", {"instance_id": name, "params": {"sparse": False}})
    await connection.verb("release", {"instance_id": name})
    return result


def play_all(
    port: int,
    runs: Iterable[tuple[str, Sequence[Sequence[str]]]],
    concurrency: int = 16,
    params: dict[str, Any] | None = None,
) -> list[dict]:
    """Play (task id, texts) runs, several at a time; evaluations in the order of the runs."""
    jobs = list(enumerate(runs))
    results: list[dict] = [{}] * len(jobs)

    async def worker() -> None:
        connection = Connection("127.0.0.1", port, deadline=300)
        while jobs:
            index, (task_id, texts) = jobs.pop()
            results[index] = await play(connection, f"run-{index}", task_id, texts, params)
        connection.close()

    async def every() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())

    asyncio.run(every())
    return results
