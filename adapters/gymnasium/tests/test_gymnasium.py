"""Gymnasium's own checker and interface over episodes of the service."""

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import gymnasium
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from seal.client import ServiceError
from seal.gym import ServiceEnv

URL = os.environ["SEAL_URL"]
SCRIPT: Mapping[str, list[str]] = json.loads(Path(os.environ["SEAL_SCRIPT"]).read_text())
"""What a perfect model writes, by task."""


@pytest.fixture
def env() -> Iterator[gymnasium.Env]:
    with gymnasium.make("seal/BFCL-v0", base_url=URL) as made:
        yield made


def test_gymnasium_s_checker_finds_nothing(env):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        check_env(env.unwrapped)


@pytest.mark.parametrize("task", SCRIPT)
def test_a_perfect_model_passes(env, task):
    _, info = env.reset(options={"task_id": task})
    assert [message["role"] for message in info["messages"]] == ["system", "user"]
    *before, last = [env.step(message) for message in SCRIPT[task]]
    assert all((reward, ended) == (0.0, False) for _, reward, ended, _, _ in before)
    _, reward, ended, truncated, info = last
    assert (reward, ended, truncated) == (1.0, True, False)
    assert info["evaluation"]["valid"] and info["stop"] == "answered"
    with pytest.raises(ResetNeeded, match="The episode has ended"):
        env.unwrapped.step("more")


def test_a_seed_chooses_the_task_and_the_same_actions_get_the_same_answers(env):
    def play(seed: int) -> list:
        answers = [env.reset(seed=seed)]
        while not answers[-1][-1].get("stop"):
            answers.append(env.step("Nothing to call."))
        return answers

    first, again, other = play(1), play(1), play(2)
    assert first == again
    assert first[0][1]["task_id"] != other[0][1]["task_id"]
    assert first[-1][1] == 0.0


def test_text_in_any_alphabet_is_an_action_and_part_of_the_space(env):
    env.reset(seed=0)
    observation, *_ = env.step("Größe 尺寸 🧭")
    assert env.action_space.contains("🧭") and env.observation_space.contains(observation)


def test_environments_run_side_by_side():
    envs = gymnasium.make_vec("seal/BFCL-v0", num_envs=3, vectorization_mode="sync", base_url=URL)
    observations, _ = envs.reset(seed=[1, 2, 1])
    assert observations[0] == observations[2] != observations[1]
    _, rewards, ended, _, _ = envs.step(("a", "b", "c"))
    assert rewards.tolist() == [0, 0, 0] and not ended.any()
    envs.close()


def test_the_dialogue_is_rendered():
    with gymnasium.make("seal/BFCL-v0", base_url=URL, render_mode="ansi") as env:
        env.reset(options={"index": 0})
        env.step("Done.")
        assert "[assistant]\nDone.\n\n[user]\n" in env.render()


def test_without_an_address_a_service_is_started(monkeypatch):
    monkeypatch.delenv("SEAL_URL")
    with gymnasium.make("seal/BFCL-v0", params={"turns": 1}) as env:
        env.reset(options={"task_id": "multi_turn_base_0"})
        assert env.unwrapped._client.url != URL
        assert env.step("Done.")[2]


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"task_id": "nope"}, ServiceError, "task_id 'nope' is unknown; ids look like multi_turn_base_0."),
        ({"index": 400}, IndexError, "index 400 is outside split 'train', which has the tasks 0 to 399."),
        ({"task": 1}, ValueError, "option 'task' is unknown: use task_id or index."),
    ],
)
def test_a_bad_reset_is_one_sentence(env, options, error, sentence):
    with pytest.raises(error) as raised:
        env.reset(options=options)
    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"base_url": "http://127.0.0.1:1"}, ServiceError, "No environment service answers at http://127.0.0.1:1: "),
        ({"split": "x"}, ServiceError, "split 'x' is unknown; choose one of "),
        ({"env_type": "x"}, ServiceError, "env_type 'x' is unknown; choose one of "),
        ({"render_mode": "human"}, ValueError, "render_mode 'human' is unknown"),
    ],
)
def test_a_bad_argument_is_one_sentence(arguments, error, sentence):
    with pytest.raises(error) as raised:
        ServiceEnv(**{"base_url": URL, **arguments})
    assert str(raised.value).startswith(sentence) and "\n" not in str(raised.value)
