"""Measure the speed of the environment service: `python -m benchmarks.service`.

Replays references over HTTP with the client on the same cores as the service
and prints, for each concurrency, episodes per second, processor time, latencies
per verb and the peak memory of the service's process tree. Before that it prints
the in-process ceiling (the same requests given to `Host` without HTTP). Processor
time is valid on a busy machine too; the other figures need a quiet one.
"""

import argparse
import asyncio
import contextlib
import itertools
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import psutil
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.memory import PeakMemory, family
from benchmarks.service.client import Connection
from env_service.channel import ActivityPage
from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.tools import parse_reference
from env_service.host import Host
from env_service.local_service import local_service

MB = 1 << 20
WARM = 2000
"""Episodes of a soak before its memory is first read."""
Run = tuple[str, list[str]]


def reference_runs(prompt_mode: str) -> list[Run]:
    """Every task with the assistant messages of its reference, one call per message if the limit allows."""
    render, runs = get_format(prompt_mode).render_call, []
    for task in load_tasks().values():
        messages: list[str] = []
        for calls in task.reference:
            texts = [render(*parse_reference(call)) for call in calls]
            size = -(-len(texts) // 20)
            messages += ["\n".join(texts[at : at + size]) for at in range(0, len(texts), size or 1)]
            messages.append("Done.")
        runs.append((task.id, messages))
    return runs


@contextlib.contextmanager
def running_service(workers: int) -> Iterator[tuple[int, int]]:
    """A service on a free port: (port, pid)."""
    with local_service(BFCL_WORKERS=str(workers)) as url:
        (process,) = psutil.Process().children()
        yield int(url.rsplit(":", 1)[1]), process.pid


async def replay(port: int, runs: Iterator[Run], concurrency: int, prompt_mode: str) -> dict[str, list[float]]:
    """Play all runs; seconds per request, by verb. Raises RuntimeError if a run is not valid."""
    seconds: dict[str, list[float]] = defaultdict(list)
    counter = itertools.count()

    async def one(connection: Connection, verb: str, body: dict[str, object]) -> object:
        began = time.perf_counter()
        data = await connection.verb(verb, body)
        seconds[verb].append(time.perf_counter() - began)
        return data

    async def client() -> None:
        connection = Connection("127.0.0.1", port)
        for task_id, messages in runs:
            name = f"bench-{next(counter)}"
            params = {"tool_prompt_mode": prompt_mode}
            await one(connection, "create", {"task_id": task_id, "instance_id": name, "params": params})
            for text in messages:
                message = {"role": "assistant", "content": text}
                await one(connection, "step", {"instance_id": name, "messages": message})
            result = await one(connection, "evaluate", {"instance_id": name, "params": {"sparse": False}})
            if not (isinstance(result, dict) and result["valid"]):
                raise RuntimeError(f"the reference of {task_id} did not pass")
            await one(connection, "release", {"instance_id": name})
        connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(client())
    return seconds


def in_process(runs: list[Run], prompt_mode: str) -> float:
    """Episodes per second of the same requests in one process, with answers encoded, without HTTP."""
    host = Host(ActivityPage(ActivityPage.allocate()))

    def ask(verb: str, arguments: dict[str, object]) -> None:
        status, answer = host.handle(verb, "x", arguments)
        if not status["ok"]:
            raise RuntimeError(f"{verb}: {answer.decode()}")

    began = time.perf_counter()
    for task_id, messages in runs:
        arguments = {"env_type": "bfcl", "task_id": task_id, "params": {"tool_prompt_mode": prompt_mode}}
        ask("create", arguments)
        for text in messages:
            ask("step", {"content": text, "truncated": False, "role": "assistant"})
        ask("evaluate", {"sparse": False})
        ask("release", {})
    return len(runs) / (time.perf_counter() - began)


def processor_seconds(pid: int) -> float:
    """Processor time of a process and its children so far."""
    times = [process.cpu_times() for process in family(pid).values()]
    return sum(each.user + each.system for each in times)


def own_mb(pid: int) -> float:
    """Megabytes of the tree's own memory, without files: libraries are shared with processes that come and go."""
    rollups = [Path(f"/proc/{each}/smaps_rollup").read_text() for each in family(pid)]
    return sum(int(re.search(r"Pss_Anon:\s+(\d+)", rollup)[1]) for rollup in rollups) / 1024


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt-mode", default="bfcl_qwen_fc", help="prompt and parser (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=1600, help="episodes per concurrency (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=0, help="BFCL_WORKERS (default: the service chooses)")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32, 256])
    parser.add_argument("--soak", type=int, default=0, help="also play this many in a row and watch memory grow")
    options = parser.parse_args()
    console, runs = Console(emoji=False, width=180), reference_runs(options.prompt_mode)

    in_process(runs, options.prompt_mode)
    ceiling = in_process(runs, options.prompt_mode)
    console.print(f"in process, without HTTP: {ceiling:.0f} episodes/s")

    verbs = ("create", "step", "evaluate", "release")
    columns = ("at once", "episodes/s", "of ceiling", "CPU ms per episode: service / client")
    table = Table(*columns, *(f"{verb} p50 / p99 ms" for verb in verbs), "peak MB")
    for concurrency in options.concurrency:
        with running_service(options.workers) as (port, pid):
            uvloop.run(replay(port, iter(runs), 8, options.prompt_mode))  # caches the references
            began, own, used = time.perf_counter(), time.process_time(), processor_seconds(pid)
            source = itertools.islice(itertools.cycle(runs), options.episodes)
            with PeakMemory(pid, "cpu", poll_s=0.1) as watch:
                seconds = uvloop.run(replay(port, source, concurrency, options.prompt_mode))
            rate = options.episodes / (time.perf_counter() - began)
            spent = (processor_seconds(pid) - used, time.process_time() - own)
            cost = " / ".join(f"{1000 * each / options.episodes:.2f}" for each in spent)
            latencies = [f"{_percentile(seconds[v], 0.5):.1f} / {_percentile(seconds[v], 0.99):.1f}" for v in verbs]
            rates = f"{rate:.0f}", f"{rate / ceiling:.0%}"
            table.add_row(str(concurrency), *rates, cost, *latencies, f"{(watch.peak.bytes or 0) / MB:.0f}")
    console.print(table)
    if options.soak:
        _soak(options.soak, runs, options.prompt_mode, options.workers, console)


def _soak(episodes: int, runs: list[Run], prompt_mode: str, workers: int, console: Console) -> None:
    with running_service(workers) as (port, pid):
        source = itertools.cycle(runs)
        first = min(WARM, episodes // 2)
        uvloop.run(replay(port, itertools.islice(source, first), 32, prompt_mode))
        early = own_mb(pid)
        uvloop.run(replay(port, itertools.islice(source, episodes - first), 32, prompt_mode))
        late = own_mb(pid)
        growth = f"{early:.0f} MB after {first}, {late:.0f} MB at the end ({late / early - 1:+.1%})"
        console.print(f"{episodes} episodes: own memory {growth}")


if __name__ == "__main__":
    main()
