"""Own and inherited faults mean the same in an environment of the kit as in the benchmark."""

import time
from collections.abc import Sequence
from typing import Any, get_args

import pytest

from env_service.environments.base import Document, Guard
from env_service.environments.kit.blame import blame
from env_service.environments.kit.environment import ToolEnvironment
from env_service.environments.kit.settings import ParseErrors
from env_service.environments.kit.tasks import Check, ToolTask
from env_service.environments.kit.worlds import MethodWorld
from seal.method.diagnosis.evidence import CallEvidence

WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
NOTHING = {"type": "object", "properties": {}}


class Words(MethodWorld):
    """A list of words: the first turn asks for one of them, the second for the whole list."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def tool_say(self, word: str) -> str:
        self.said.append(word)
        return word

    def check(self, turn: int, calls: Sequence[CallEvidence]) -> Check:
        return Check(state_match="amber" in self.said if turn == 0 else self.said == ["amber", "birch"])


class TwoTurns(ToolEnvironment):
    name = "two_turns"
    writes = frozenset({"say"})
    rule = "There is one task."

    def load(self) -> Sequence[ToolTask]:
        calls = ((("say", {"word": "amber"}),), (("say", {"word": "birch"}),))
        return [ToolTask("both", "say", "train", "both", ("Say amber.", "Say birch."), calls)]

    def tools(self, task: ToolTask) -> Sequence[Document]:
        say = {"name": "say", "description": "Say a word.", "parameters": WORD}
        return (say, {"name": "done", "description": "End the turn.", "parameters": NOTHING})

    def world(self, task: ToolTask) -> Words:
        return Words()

    def data_hash(self) -> str:
        return "two turns"


class EndedByTool(TwoTurns):
    stop_tool = "done"


def blames(environment: ToolEnvironment, *turns: Sequence[str], closings: Sequence[str] = ()) -> list[str | None]:
    """Whose fault each turn is when these words are said in it; closings: what ends each turn."""
    episode = environment.open("both", {"tool_prompt_mode": "compact"}, Guard())
    for index, words in enumerate(turns):
        for word in words:
            episode.step(environment.render("compact", ("say", {"word": word})), False)
        episode.step(closings[index] if closings else environment.closing("compact"), False)
    return [turn.blame for turn in episode.evidence()]


def test_a_turn_that_fails_from_the_references_state_too_is_to_blame() -> None:
    assert blames(TwoTurns(), ["amber"], ["cedar"]) == [None, "own"]
    assert blames(TwoTurns(), ["cedar"], ["cedar"]) == ["own", "own"]


def test_a_turn_that_passes_from_the_references_state_inherited_its_failure() -> None:
    assert blames(TwoTurns(), ["cedar"], ["birch"]) == ["own", "inherited"]


def test_a_turn_that_passed_but_left_the_world_elsewhere_is_to_blame() -> None:
    assert blames(TwoTurns(), ["amber", "cedar"], ["birch"]) == ["own", "inherited"]


def test_a_turn_that_is_over_is_to_blame_also_if_the_caller_gives_the_episode_up() -> None:
    assert blames(TwoTurns(), ["cedar"]) == ["own", None]


def test_a_turn_that_was_not_ended_with_the_stop_tool_fails_from_any_state() -> None:
    done = EndedByTool().closing("compact")
    assert blames(EndedByTool(), ["amber"], ["birch"]) == [None, None]
    assert blames(EndedByTool(), ["cedar"], ["birch"], closings=[done, "Done."]) == ["own", "own"]
    assert blames(EndedByTool(), ["cedar"], ["birch"], closings=[done, done]) == ["own", "inherited"]


@pytest.mark.parametrize("on_error", get_args(ParseErrors))
@pytest.mark.parametrize("needed", [(), (("say", {"word": "birch"}),)])
def test_a_call_that_cannot_be_read_is_its_turn_s_own_also_where_none_is_needed(on_error: str, needed: Any) -> None:
    class Thanked(TwoTurns):
        def load(self) -> Sequence[ToolTask]:
            calls = ((("say", {"word": "amber"}),), needed, (("say", {"word": "cedar"}),))
            return [ToolTask("both", "say", "train", "both", ("Say amber.", "Go on.", "Say cedar."), calls)]

    for before in ((), (("say", {"word": "cedar"}),)):  # a call of the turn that can be read
        episode = Thanked().open("both", {"parse_errors": on_error}, Guard())
        calls = [Thanked().render("hermes", call) for call in (("say", {"word": "amber"}), *before)]
        for message in (calls[0], "Done.", *calls[1:], "<tool_call>{</tool_call>", "Done.", "Done."):
            if episode.step(message, False)["is_terminated"]:
                break
        assert [turn.blame for turn in episode.evidence()][:2] == [None, "own"]


def test_replays_in_a_world_that_waits_without_computing_end_too() -> None:
    class Waiting(Words):
        def tool_say(self, word: str) -> str:
            time.sleep(0.05)
            return super().tool_say(word)

    class Elsewhere(TwoTurns):
        def world(self, task: ToolTask) -> Words:
            return Waiting()

    turns = [[CallEvidence("say", {"word": "cedar"}, True)] * 100] * 2
    began = time.monotonic()
    assert blame(Elsewhere().scene("both", {}), turns, [True, True], seconds=0.02) == ("own", "own")
    assert time.monotonic() - began < 2.5
