"""Play given assistant messages over HTTP."""

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from env_service.client import AsyncServiceClient
from tests.env_service.bfcl_perturbations import Cut

DEADLINE_S = 300.0
ATTEMPTS = 3


async def play(
    client: AsyncServiceClient,
    name: str,
    task_id: str,
    texts: Sequence[Sequence[str]],
    params: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Create, step through the messages and then "Done." until the end, evaluate, release; the evaluation.

    A :class:`Cut` is sent that a length limit cut.
    """
    await client.create(task_id, name, params)
    for text in itertools.chain((text for turn in texts for text in turn), itertools.repeat("Done.")):
        if (await client.step(name, text, isinstance(text, Cut)))["is_terminated"]:
            break
    result = await client.evaluate(name)
    await client.release(name)
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
    client = AsyncServiceClient(f"http://127.0.0.1:{port}", deadline_s=DEADLINE_S, attempts=ATTEMPTS)

    async def worker() -> None:
        while jobs:
            index, (task_id, texts) = jobs.pop()
            results[index] = await play(client, f"run-{index}", task_id, texts, params)

    async def every() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(worker())
        finally:
            await client.close()

    asyncio.run(every())
    return results
