"""verifiers' own evaluation plays the service's episodes with a scripted model."""

import asyncio
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest
import verifiers.v1 as vf
from scripted_model import scripted_model
from seal_verifiers import load_environment
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.episode import Episode

from env_service.client import ServiceClient, ServiceError

URL = os.environ["SEAL_URL"]
SCRIPT: Mapping[str, list[str]] = {
    task: messages
    for task, messages in json.loads(Path(os.environ["SEAL_SCRIPT"]).read_text()).items()
    if "_miss_param_" not in task
}
"""Messages of a perfect model, by task. The endpoint identifies a task by its opening, and one with a missing parameter
may open like its complete variant."""


def openings(scripts: Mapping[str, list[str]]) -> dict[tuple[str, str], list[str]]:
    """The scripts by what their tasks open with."""
    found = {}
    with ServiceClient(URL) as client:
        for task, messages in scripts.items():
            name = uuid.uuid4().hex
            system, user = client.create(task, name, {"split": "train"})["state"]
            client.release(name)
            found[system["content"], user["content"]] = messages
    return found


def evaluate(folder: Path, scripts: Mapping[str, list[str]], url: str = URL, finish: str = "stop") -> list[Episode]:
    """Evaluate the scripts' tasks as `vf-eval seal-verifiers` does."""
    with scripted_model(openings(scripts), finish) as endpoint:
        config = EvalConfig.model_validate(
            {
                "env": {"taskset": {"id": "seal-verifiers", "base_url": url, "split": "train"}},
                "model": "scripted",
                "client": {"base_url": endpoint, "api_key_var": "NO_KEY"},
                "select": {"include": {"ids": list(scripts)}},
                "output_dir": folder,
                "push": False,
                "rich": None,
            }
        )
        return asyncio.run(run_eval(config))


def test_a_perfect_model_passes_every_task_and_its_text_arrives_unchanged(tmp_path):
    episodes = evaluate(tmp_path, SCRIPT)
    assert sorted(episode.task.key for episode in episodes) == sorted(SCRIPT)
    for episode in episodes:
        (trace,) = episode.traces
        assert episode.ok, episode.errors
        assert (trace.reward, trace.metrics["progress"]) == (1.0, 1.0)
        written = [m.content for m in trace.branches[-1].messages if isinstance(m, vf.AssistantMessage)]
        assert written == SCRIPT[episode.task.key]
        assert trace.info["seal"]["stop"] == "answered"
        assert set(trace.info["seal"]["labels"]) <= {"pass", "correct_abstention"}


def test_a_silent_model_fails(tmp_path):
    scripts = {task: ["I do nothing."] * 20 for task in list(SCRIPT)[:2]}
    for episode in evaluate(tmp_path, scripts):
        assert episode.ok and episode.traces[0].reward == 0.0


def test_a_message_that_a_length_limit_cut_ends_the_episode(tmp_path):
    (episode,) = evaluate(tmp_path, dict(list(SCRIPT.items())[:1]), finish="length")
    assert episode.ok and episode.traces[0].info["seal"]["stop"] == "length"


def test_a_service_that_goes_away_fails_the_episode_and_is_no_zero_reward():
    environment = load_environment(base_url=URL)
    task = next(iter(environment.taskset))
    environment._client = ServiceClient("http://127.0.0.1:1")

    async def play() -> Episode:
        context = vf.ModelContext(model="m", client=vf.EvalClientConfig(base_url=URL), sampling=vf.SamplingConfig())
        async with environment.serving():
            return await environment.run_episode(task, context)

    episode = asyncio.run(play())
    assert not episode.ok and episode.traces == []
    assert "No environment service answers at http://127.0.0.1:1" in episode.errors[0].message


def test_bad_input_is_one_sentence():
    with pytest.raises(ServiceError, match="No environment service answers at"):
        list(load_environment(base_url="http://127.0.0.1:1").taskset)
    with pytest.raises(ServiceError, match="split 'x' is unknown; choose one of"):
        list(load_environment(base_url=URL, split="x").taskset)
    with pytest.raises(ServiceError, match="env_type 'x' is unknown; choose one of"):
        list(load_environment(base_url=URL, env_type="x").taskset)
