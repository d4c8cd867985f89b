"""Commands that play rollout after rollout: one process for each place, replaced when it fails."""

import asyncio
import re
import shutil
import sys

import psutil
import pytest
import uvloop

from seal.rollout.dialogue import Dialogue
from seal.rollout.harness.gateway import shared_gateway
from seal.rollout.harness.task import Address, Task
from tests.support.rollout_play import ScriptedEngine, outcome, reference_texts, roll_out, running_service

NODE = pytest.param("[node,exp/harness/plain_text.mjs]", marks=pytest.mark.skipif(not shutil.which("node"), reason=""))


IMPATIENT = """
import json, os, urllib.request
while True:
    try:
        rollout = json.load(urllib.request.urlopen(os.environ["SEAL_NEXT_URL"], timeout=0.3))
        print(rollout["SEAL_TASK_URL"], flush=True)
    except TimeoutError:
        pass
"""


@pytest.fixture(autouse=True)
def loop_of_ray(monkeypatch):
    """Ray's workers run uvloop."""
    monkeypatch.setattr(asyncio, "run", uvloop.run)


@pytest.fixture(scope="module")
def url():
    with running_service() as service:
        yield service.url


def played(url, folder, harness, trajectories, *settings):
    """The rollouts of a command."""
    places = ("seal.rollout.attempts=1", f"seal.run_dir={folder}", f"seal.rollout.harness={harness}")
    return roll_out([url], ScriptedEngine(reference_texts()), *places, *settings, trajectories=trajectories)


def processes(folder):
    """The process that each rollout says in its log."""
    logs = sorted(folder.rglob("*.log"), key=lambda log: int(re.search(r"(\d+)\.log", log.name)[1]))
    return [re.search(r"process (\d+)", log.read_text())[1] for log in logs]


def started(words):
    """Of our processes, orphans among them, those with these words in their command."""
    known = ((each, each.as_dict(["cmdline"])["cmdline"]) for each in psutil.Process().children(recursive=True))
    return [each for each, command in known if words in " ".join(command or ())]


@pytest.mark.parametrize("harness", [f"[{sys.executable},exp/harness/plain_text.py]", NODE])
def test_a_process_that_asks_for_the_next_rollout_plays_as_seals_own_loop(url, tmp_path, harness):
    (own,) = roll_out([url], ScriptedEngine(reference_texts()))
    rollouts = played(url, tmp_path, harness, 6, "seal.rollout.concurrency=2")
    assert {each.infra for _, each in rollouts} == {None}
    assert all(outcome(each) == outcome(own) for each in rollouts)
    assert started("plain_text") == []


@pytest.mark.parametrize(
    ("odd", "infra", "replaced"),
    [
        ("dying", "harness", True),
        ("killed", "harness", True),
        ("hanging", "harness_timeout", True),
        ("leaving", "harness", False),
        ("growing", None, True),
        ("staying", None, True),
        ("leaking", None, False),
    ],
)
def test_a_place_loses_what_its_process_does_wrong_and_nothing_else(url, tmp_path, odd, infra, replaced):
    harness = f"[{sys.executable},tests/support/staying.py,{odd}]"
    settings = ("seal.rollout.concurrency=1", "seal.rollout.harness_failure=failed")
    settings += ("seal.rollout.deadline_s=15",) if odd == "hanging" else ()
    rollouts = played(url, tmp_path, harness, 3, *settings)
    assert [each.infra for _, each in rollouts] == [None, infra, None]
    assert [each.score for _, each in rollouts] == [1.0, 0.0 if infra else 1.0, 1.0]
    first, second, third = processes(tmp_path)
    assert first == second and (third != second) == replaced
    assert started("time.sleep(600)") == []


def test_a_process_that_gives_up_its_request_and_asks_again_loses_no_rollout(tmp_path):
    async def played():
        places, log = shared_gateway().places, tmp_path / "log"
        for number in range(3):
            task = Task(Dialogue(messages=[{"role": "user", "content": "u"}]), Address("", "", ""), f"task {number}", 9)
            async with asyncio.timeout(60):
                await places.play([sys.executable, "-c", IMPATIENT], task, log, ())
            assert log.read_text().split("\n")[-2] == f"task {number}" and len(places) == 1
            await asyncio.sleep(1)

    asyncio.run(played())
