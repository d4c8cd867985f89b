"""No call of a policy can stop the service or disturb another episode."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.service.client import Connection
from env_service.environments.base import Guard
from env_service.environments.bfcl.catalog import Task, load_tasks
from env_service.environments.bfcl.formats import format_names, get_format
from env_service.environments.registry import get_environment
from env_service.settings import ServerSettings
from env_service.worker import Worker
from tests.env_service.bfcl_perturbations import reference_calls, texts

MODE = {"tool_prompt_mode": "compact"}


def say(call: str, **arguments: Any) -> dict[str, str]:
    """An assistant message with one call."""
    text = json.dumps({"name": call, "arguments": arguments})
    return {"role": "assistant", "content": f"<tool_call>{text}</tool_call>"}


def maths_task() -> Task:
    return next(task for task in load_tasks().values() if "MathAPI" in task.involved_classes)


def files_task() -> Task:
    return next(task for task in load_tasks().values() if "GorillaFileSystem" in task.involved_classes)


def metric(port: int, name: str) -> float:
    """One figure of /metrics."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"env_service_{name} "))


def alone(task: Task, messages: list[str]) -> list[Any]:
    """Return an episode's answers when nothing else runs."""
    episode = get_environment("bfcl").open(task.id, MODE, Guard())
    episode.start()
    return [episode.step(message, False)["state"] for message in messages]


HANGING = [
    ("power", {"base": 10, "exponent": 10**9}),
    ("square_root", {"number": 2, "precision": 10**7}),
    ("logarithm", {"value": 10, "base": 2, "precision": 10**6}),
    ("round_number", {"number": 5, "decimal_places": -(10**9)}),
]


@pytest.mark.parametrize(("name", "arguments"), HANGING, ids=[name for name, _ in HANGING])
def test_a_hanging_call_becomes_a_tool_error_and_other_episodes_notice_nothing(
    service: int, name: str, arguments: dict[str, Any]
) -> None:
    others = list(load_tasks().values())[:400:100]
    runs = [[m for turn in texts(reference_calls(task), None, "compact") for m in turn] for task in others]

    async def scenario() -> tuple[Any, Any, list[list[Any]], list[Any]]:
        connection = Connection("127.0.0.1", service, deadline=300)
        for index, task in enumerate(others):
            await connection.verb("create", {"task_id": task.id, "instance_id": f"o{index}", "params": MODE})
        await connection.verb("create", {"task_id": maths_task().id, "instance_id": "hang", "params": MODE})
        answers: list[list[Any]] = [[] for _ in others]

        async def advance(until: int | None) -> None:
            own = Connection("127.0.0.1", service, deadline=300)
            for index, run in enumerate(runs):
                for text in run[len(answers[index]) : until]:
                    body = {"instance_id": f"o{index}", "messages": {"role": "assistant", "content": text}}
                    answers[index].append((await own.verb("step", body))["state"])
            own.close()

        await advance(2)
        hanging = connection.verb("step", {"instance_id": "hang", "messages": say(name, **arguments)})
        hung, _ = await asyncio.gather(hanging, advance(None))
        after = await connection.verb("step", {"instance_id": "hang", "messages": say("add", a=1, b=2)})
        verdicts = []
        for index in range(len(others)):
            verdicts.append(await connection.verb("evaluate", {"instance_id": f"o{index}", "params": {"sparse": True}}))
            await connection.verb("release", {"instance_id": f"o{index}"})
        report = await connection.verb("evaluate", {"instance_id": "hang"})
        await connection.verb("release", {"instance_id": "hang"})
        connection.close()
        assert [call["error"] for call in report["evidence"][0]["actions"][0]["calls"]] == [hung["info"]["error_class"]]
        return hung, after, answers, verdicts

    hung, after, answers, verdicts = asyncio.run(scenario())
    assert hung["info"]["error_class"] == "deadline"
    assert "rror" in hung["state"][0]["content"]
    assert '"result": 3' in after["state"][0]["content"]
    assert verdicts == [1.0] * len(others)
    assert answers == [alone(task, run) for task, run in zip(others, runs, strict=True)]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_workers_killed_from_outside_are_replaced_and_episodes_go_on(
    start_service: Callable[..., AbstractContextManager[int]],
) -> None:
    task = files_task()
    run = [text for turn in texts(reference_calls(task), None, "compact") for text in turn]

    async def scenario(port: int, workers: list[int]) -> None:
        connection = Connection("127.0.0.1", port, deadline=300)
        for name in "abcd":
            await connection.verb("create", {"task_id": task.id, "instance_id": name, "params": MODE})
        answers: dict[str, list[Any]] = {name: [] for name in "abcd"}
        for index, text in enumerate(run):
            if index == 2:
                for worker in workers:
                    os.kill(worker, signal.SIGKILL)
            for name in "abcd":
                body = {"instance_id": name, "messages": {"role": "assistant", "content": text}}
                answers[name].append((await connection.verb("step", body))["state"])
        for name in "abcd":
            report = await connection.verb("evaluate", {"instance_id": name})
            assert (report["valid"], report["errors"]) == (True, 0)
        assert all(answer == alone(task, run) for answer in answers.values())
        connection.close()

    before = set(children(os.getpid()))
    with start_service(BFCL_WORKERS="2") as port:
        (service_pid,) = set(children(os.getpid())) - before
        asyncio.run(scenario(port, children(service_pid)))
        assert metric(port, "worker_restarts") == 2


def test_a_worker_that_stops_while_it_is_idle_is_replaced(
    start_service: Callable[..., AbstractContextManager[int]],
) -> None:
    async def scenario(port: int, worker: int) -> Any:
        connection = Connection("127.0.0.1", port, deadline=60)
        await connection.verb("create", {"task_id": maths_task().id, "instance_id": "a", "params": MODE})
        os.kill(worker, signal.SIGSTOP)
        answer = await connection.verb("step", {"instance_id": "a", "messages": say("add", a=1, b=2)})
        connection.close()
        return answer["info"]["error_class"]

    before = set(children(os.getpid()))
    with start_service(BFCL_WORKERS="1", BFCL_REQUEST_SECONDS="1") as port:
        (service_pid,) = set(children(os.getpid())) - before
        assert asyncio.run(scenario(port, *children(service_pid))) is None


def test_connections_that_use_up_the_descriptors_do_not_end_the_watch_over_deadlines(
    start_service: Callable[..., AbstractContextManager[int]],
) -> None:
    hanging = say("power", base=10, exponent=10**9)

    async def scenario(port: int) -> Any:
        connection, idle = Connection("127.0.0.1", port, deadline=60), []
        await connection.verb("create", {"task_id": maths_task().id, "instance_id": "a", "params": MODE})
        step = asyncio.create_task(connection.post("step", {"instance_id": "a", "messages": hanging}))
        await asyncio.sleep(0.2)
        for _ in range(120):
            idle.append(await asyncio.open_connection("127.0.0.1", port))
            idle[-1][1].write(b"POST /step HTTP/1.1\r\n")
        reads = [asyncio.create_task(reader.read()) for reader, _ in idle]
        closed, others = await asyncio.wait(reads, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert closed  # for the sake of the others
        for read in others:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
        await asyncio.wait([step], timeout=3)
        for _, writer in idle:
            writer.close()
        status, answer = await step
        if status == 200:
            assert answer["data"]["info"]["error_class"] == "deadline"
        deadline = time.monotonic() + 60
        while True:  # 503 until the service has closed the connections: no worker could take the message
            connection.close()
            connection = Connection("127.0.0.1", port, deadline=10)
            with contextlib.suppress(orjson.JSONDecodeError, OSError, asyncio.IncompleteReadError):  # plain text
                status, answer = await connection.post("step", {"instance_id": "a", "messages": say("add", a=1, b=2)})
                if status != 503:
                    break
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)
        connection.close()
        assert status == 200, answer
        return answer["data"]["info"]["error_class"]

    limited = ("bash", "-c", 'ulimit -n 100; exec "$0" -m env_service', sys.executable)
    with start_service(limited, BFCL_WORKERS="1", BFCL_CALL_SECONDS="1") as port:
        assert asyncio.run(scenario(port)) is None
        assert urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10).status == 200


def test_no_worker_outlives_a_service_that_is_killed_in_the_middle_of_a_call(
    start_service: Callable[..., AbstractContextManager[int]],
) -> None:
    before = set(children(os.getpid()))
    with start_service(BFCL_WORKERS="1", BFCL_CALL_SECONDS="60") as port:
        (service_pid,) = set(children(os.getpid())) - before
        (worker,) = children(service_pid)

        async def hang() -> None:
            connection = Connection("127.0.0.1", port, deadline=3)
            await connection.verb("create", {"task_id": maths_task().id, "instance_id": "a", "params": MODE})
            with contextlib.suppress(TimeoutError):
                await connection.verb(
                    "step", {"instance_id": "a", "messages": say("square_root", number=2, precision=10**7)}
                )

        asyncio.run(hang())
        os.kill(service_pid, signal.SIGKILL)
        gone = time.monotonic() + 60
        while Path(f"/proc/{worker}/cmdline").exists() and Path(f"/proc/{worker}/cmdline").read_text():
            assert time.monotonic() < gone, "the worker still runs"
            time.sleep(0.05)


def test_a_new_worker_process_is_counted_only_when_it_can_be_asked() -> None:
    async def scenario() -> bytes:
        worker = Worker(ServerSettings(workers=1))
        await worker.start()
        replacing = asyncio.ensure_future(worker.replace(0))
        while worker.generation == 0:
            await asyncio.sleep(0)
        answer = await worker.request("version", None, {"env_type": "bfcl"})
        await replacing
        await worker.stop()
        return answer

    assert json.loads(asyncio.run(scenario())) == get_environment("bfcl").version()


def test_a_directory_copied_into_itself_harms_nobody() -> None:
    task = files_task()
    episode = get_environment("bfcl").open(task.id, MODE, Guard())
    episode.start()
    hostile = [
        say("mkdir", dir_name="d"),
        say("cp", source="d", destination="d"),
        say("find", path=".", name="x"),
        say("du", human_readable=True),
        say("ls", a=True),
    ]
    for message in hostile:
        assert episode.step(message["content"], False)["state"]
    for turn in task.users:
        assert turn is not None
        episode.step("Done.", False)
    result = episode.evaluate({})
    assert (result["valid"], result["completed"], result["evidence"][0].state_match) == (False, True, False)


def test_a_message_full_of_hanging_calls_costs_three_deadlines_and_no_episode(service: int) -> None:
    call = json.dumps({"name": "power", "arguments": {"base": 10, "exponent": 10**9}})
    content = f"<tool_call>{call}</tool_call>" * 12

    async def scenario() -> Any:
        connection = Connection("127.0.0.1", service, deadline=300)
        await connection.verb("create", {"task_id": maths_task().id, "instance_id": "many", "params": MODE})
        before = metric(service, "worker_restarts")
        message = {"role": "assistant", "content": content}
        await connection.verb("step", {"instance_id": "many", "messages": message})
        report = await connection.verb("evaluate", {"instance_id": "many"})
        await connection.verb("release", {"instance_id": "many"})
        connection.close()
        assert metric(service, "worker_restarts") - before <= 3
        return report["evidence"][0]["actions"][0]["calls"]

    calls = asyncio.run(scenario())
    assert [call["error"] for call in calls] == ["deadline"] * 12


def test_the_hanging_calls_of_many_episodes_cost_no_other_its_episode(
    start_service: Callable[..., AbstractContextManager[int]],
) -> None:
    hanging = 9

    async def scenario(port: int) -> list[Any]:
        async def one(name: str, call: dict[str, Any]) -> Any:
            connection = Connection("127.0.0.1", port, deadline=120)
            await connection.verb("create", {"task_id": maths_task().id, "instance_id": name, "params": MODE})
            created.append(name)
            while len(created) <= hanging:
                await asyncio.sleep(0.01)
            answer = await connection.verb("step", {"instance_id": name, "messages": call})
            connection.close()
            return answer["info"]["error_class"]

        created: list[str] = []
        calls = [say("power", base=10, exponent=10**9)] * hanging + [say("add", a=1, b=2)]
        return await asyncio.gather(*(one(f"e{number}", call) for number, call in enumerate(calls)))

    with start_service(BFCL_WORKERS="1", BFCL_CALL_SECONDS="0.3") as port:
        assert asyncio.run(scenario(port)) == ["deadline"] * hanging + [None]


@pytest.mark.parametrize("mode", format_names())
def test_reading_a_message_takes_linear_time_on_any_text(mode: str) -> None:
    for piece in ("<tool_call>\n", "<think>", "<tool_call>", "[", "(", "{", "-", "ls(", '{"name":', "a=b;"):

        def spent(length: int, piece: str = piece) -> float:
            began = time.process_time()
            get_format(mode).parse(piece * (length // len(piece)))
            return time.process_time() - began

        # Four times the text takes four times as long, on any processor; the square of its length, sixteen times.
        assert spent(200_000) < 12 * max(spent(50_000), 0.05), piece
