"""Synthesised tasks are judged as the official checker judges them, and the service serves their files."""

import dataclasses
import gc
import itertools
import json
import random
import subprocess
import sys
import urllib.error
import urllib.request
import weakref
from collections.abc import Sequence
from pathlib import Path

import pytest

from env_service.environments.base import Guard
from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.task_file import MadeTask, write_task_file
from env_service.environments.bfcl.verifier import reference
from seal.records.benchmark import LEVELS
from seal.system.paths import HOME
from shelf.authoring.runs import open_episode
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from tests.env_service import bfcl_official as official
from tests.env_service.bfcl_perturbations import reference_calls, texts, with_faults
from tests.env_service.bfcl_play import play_all


def made(count: int, seed: int = 0) -> list[MadeTask]:
    """Tasks of every level."""
    return [task for level in LEVELS for task in synthesise(Grammar(), count // len(LEVELS), seed, level)]


def our_verdict(task: Task, run: Sequence[Sequence[str]]) -> bool:
    episode = open_episode(task, {})
    episode.start()
    for text in (text for turn in run for text in turn):
        if episode.step(text, False)["is_terminated"]:
            break
    return episode.evaluate({"sparse": True}) == 1.0


def assert_agreement(count: int) -> None:
    """Perfect runs pass officially and here; runs with faults get the same verdict."""
    rng, verdicts = random.Random(0), []
    for each in made(count):
        task = each.task
        perfect = texts(reference_calls(task), None)
        assert our_verdict(task, perfect) and official.verdict(task, perfect), task.id
        kinds, faulty = with_faults(task, rng)
        verdicts.append(our_verdict(task, faulty))
        assert official.verdict(task, faulty) == verdicts[-1], (task.id, kinds, faulty)
    assert 0.1 < sum(verdicts) / len(verdicts) < 0.7


def test_verdicts_on_synthesised_tasks_are_official() -> None:
    assert_agreement(80)


@pytest.mark.slow
def test_verdicts_on_ten_thousand_synthesised_tasks_are_official() -> None:
    assert_agreement(10_000)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[list[MadeTask], Path, Path]:
    """Tasks in two files of 20 each."""
    tasks, folder = made(40), tmp_path_factory.mktemp("files")
    write_task_file(tasks[:20], folder / "one.jsonl")
    write_task_file(tasks[20:], folder / "two.jsonl")
    return tasks, folder / "one.jsonl", folder / "two.jsonl"


def post(port: int, verb: str, body: object, token: str = "") -> dict:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{verb}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def served(port: int, split: str = "synth") -> list[str]:
    return post(port, "get_env_profile", {"params": {"split": split}})["data"]


def test_the_service_plays_the_tasks_of_its_files(start_service, files) -> None:
    tasks, one, two = files
    with start_service(BFCL_WORKERS="2", BFCL_TASK_FILES=f"{one}, {two}") as port:
        assert served(port) == [task.id for task in tasks]
        assert len(served(port, "")) == 800
        paths = [task.id for task in tasks if task.level == "paths" and task.category == "base"]
        assert served(port, "synth_paths_base") == paths
        results = play_all(port, [(task.id, texts(reference_calls(task.task), None)) for task in tasks])
        assert [result["valid"] for result in results] == [True] * len(tasks)
        assert {result["test_category"] for result in results} == {task.task.category for task in tasks}


def test_tasks_sent_while_the_service_runs_are_served_by_every_worker(start_service, files, tmp_path) -> None:
    tasks, one, two = files
    with start_service(BFCL_WORKERS="2", BFCL_TASK_FILES=str(one), TMPDIR=str(tmp_path)) as port:
        sent = [json.loads(line) for line in two.read_text().splitlines()]
        assert post(port, "tasks", {"tasks": sent}) == {"success": True, "data": 20}
        assert post(port, "tasks", {"tasks": sent})["data"] == 20
        assert served(port) == [task.id for task in tasks]
        runs = [(task.id, texts(reference_calls(task.task), None)) for task in tasks[20:] * 2]
        assert all(result["valid"] for result in play_all(port, runs))
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(port, "tasks", {"tasks": [{**sent[0], "users": ["Another message."] * len(sent[0]["users"])}]})
        assert refused.value.code == 400
        assert "is not the id of its content" in json.load(refused.value)["detail"]
        assert len(list(tmp_path.glob("seal_tasks_*/*"))) == 1, "what was refused does not stay"
    assert not [*tmp_path.iterdir()], "nor does anything when SIGTERM ends the service"


def test_sending_tasks_needs_the_token(start_service, files) -> None:
    sent = [json.loads(files[1].read_text().splitlines()[0])]
    with start_service(BFCL_WORKERS="1", BFCL_TOKEN="secret") as port:
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(port, "tasks", {"tasks": sent})
        assert refused.value.code == 401
        assert post(port, "tasks", {"tasks": sent}, token="secret")["data"] == 1


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "there is no file"), ("{}", "has no category"), ("", "holds no task")]
)
def test_a_bad_file_ends_the_start_with_a_sentence(tmp_path, content, sentence) -> None:
    path = tmp_path / "bad.jsonl"
    if content is not None:
        path.write_text(content)
    command = [sys.executable, "-m", "seal.cli", "serve", "--port", "0", "--workers", "1", "--task-files", str(path)]
    ended = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=120)
    assert ended.returncode != 0
    assert sentence in ended.stderr


def test_an_unknown_synthesised_task_names_the_setting() -> None:
    with pytest.raises(ValueError, match="BFCL_TASK_FILES"):
        BfclEnvironment().open("synth_train_base_0123456789ab", {}, Guard())


def test_a_prefix_of_a_synthesised_task_is_judged_by_its_own_turns(files) -> None:
    for each in files[0]:
        task = each.task
        for turns in range(1, len(task.users) + 1):
            prefix = task.prefix(turns)
            assert [turn.results for turn in reference(prefix)] == [turn.results for turn in reference(task)][:turns]
            if any(prefix.reference):
                assert our_verdict(prefix, texts(reference_calls(prefix), None))


def test_a_changed_copy_is_not_judged_by_the_reference_of_the_original(files) -> None:
    task = next(each.task for each in files[0] if len(each.users) > 1 and each.reference[-1])
    before = [turn.results for turn in reference(task)]
    shortened = dataclasses.replace(task, reference=(*task.reference[:-1], ()))
    assert [turn.results for turn in reference(shortened)] == [*before[:-1], ()] != before
    assert [turn.results for turn in reference(task)] == before


def test_kept_references_are_bounded(files) -> None:
    # A made task gives another object each time, whose reference is kept apart.
    tasks = [each.task for each in itertools.islice(itertools.cycle(files[0]), 600)]
    first = weakref.ref(reference(tasks[0])[0])
    kept = [weakref.ref(reference(task)[0]) for task in tasks[1:]]
    gc.collect()
    assert first() is None
    assert sum(turn() is not None for turn in kept) <= 512
