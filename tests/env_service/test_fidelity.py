"""Without Omega an episode is the plain benchmark: the interface is never asked for anything."""

import json
from typing import Any

import pytest

from env_service.environments.base import Guard
from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.tools import parse_reference
from env_service.environments.kit import dialogue
from tests.support.samples import in_steps

BROKEN = '<tool_call>{"name":"nothing","arguments":{}}</tool_call>'
INTERFACE = ("observe_start", "observe_feedback", "observe_reveal", "LeakGuard")


def _transcript(task_id: str, params: dict[str, Any]) -> list[str]:
    """Every answer of an episode that makes a mistake, plays the reference and ends each turn."""
    task = load_tasks()[task_id]
    written = get_format(params["tool_prompt_mode"])
    episode = BfclEnvironment().open(task_id, params, Guard())
    answers = [episode.start()]
    for number, turn in enumerate(task.reference):
        calls = [written.render_call(*parse_reference(call)) for call in turn]
        for content in (*([BROKEN] if number == 0 else []), *calls, "Done."):
            if not answers[-1].get("is_terminated"):  # a few references need more calls than a turn may have
                answers.append(episode.step(content, False))
    answers.append(episode.evaluate({}))
    return [json.dumps(answer, sort_keys=True, default=str) for answer in answers]


@in_steps
@pytest.mark.parametrize("mode", ["bfcl_qwen_fc", "compact"])
def test_no_episode_without_omega_reaches_the_interface(monkeypatch: pytest.MonkeyPatch, mode: str, step: int) -> None:
    params = {"split": "eval", "tool_prompt_mode": mode}
    present = {task_id: _transcript(task_id, params) for task_id in [*load_tasks()][::step]}

    def absent(*_: Any) -> None:
        raise AssertionError("the interface was asked in an episode without Omega")

    for name in INTERFACE:
        monkeypatch.setattr(dialogue, name, absent)
    assert len(present) == 800 // step
    for task_id, answers in present.items():
        assert _transcript(task_id, params) == answers, task_id


def test_with_an_omega_the_same_episode_does_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: Any) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(dialogue, "observe_start", absent)
    with pytest.raises(AssertionError, match="asked"):
        _transcript("multi_turn_base_0", {"tool_prompt_mode": "compact", "omega": {"version": 0, "cues": {}}})


def test_a_guarded_episode_refuses_a_cue_that_tells_what_only_the_reference_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = {"tool_prompt_mode": "compact", "omega": {"version": 0, "cues": {}}, "leak_guard": True}
    assert _transcript("multi_turn_base_0", params)  # the real interface leaks nothing
    monkeypatch.setattr(dialogue, "observe_start", lambda content, *_: content + "\nTry cd(folder='document').")
    with pytest.raises(ValueError, match="interface leak in multi_turn_base_0"):
        _transcript("multi_turn_base_0", params)
