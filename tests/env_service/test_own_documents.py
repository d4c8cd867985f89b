"""An own environment whose tools' documents are JSON Schema as real programs write it."""

import pytest

from env_service.environments.base import Guard
from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.kit.environment import ToolEnvironment
from env_service.environments.kit.tasks import Check, ToolTask
from env_service.environments.kit.worlds import MethodWorld
from seal.method.interface.cues import Omega

NOTE = {"type": ["string", "null"], "description": "The note (DD/MM/YYYY), options: red, blue."}
KEPT = {
    "page": ({"type": "integer", "enum": [10, 25, 50]}, 25),
    "note": (NOTE, None),
    "cleared": ({"type": "string", "nullable": True}, None),
    "labels": ({"type": "object", "properties": [], "additionalProperties": {"type": "string"}}, {"team": "red"}),
    "anything": (True, [1, {"a": None}]),
    "described": ({"type": "string", "description": None}, "x"),
    "choice": ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
}
BARE = {"a name alone": {"name": "keep"}, "nulls": {"name": "keep", "description": None, "parameters": None}}
"""Documents without parameters."""


class KeepWorld(MethodWorld):
    def __init__(self, wanted):
        self.wanted, self.kept = wanted, {}

    def tool_keep(self, **given):
        self.kept = given
        return {"error": 0, "kept": given}

    def tool_forget(self):
        self.kept = {}
        return "ERROR budget: 99.9 %"

    def check(self, turn, calls):
        return Check(state_match=self.kept == self.wanted)


class Keep(ToolEnvironment):
    name, rule, writes = "keep", "One task is on each side.", frozenset({"keep", "forget"})

    def load(self):
        return [
            ToolTask(name, "all", None, name, ("Keep it.",), ((("keep", {name: value}),),), {name: value})
            for name, (_, value) in KEPT.items()
        ] + [ToolTask(name, "all", None, name, ("Keep it.",), ((("keep", {"x": 1}),),), {"x": 1}) for name in BARE]

    def tools(self, task):
        if task.id not in KEPT:
            return (BARE[task.id],)
        parameters = {"type": "object", "properties": {task.id: KEPT[task.id][0]}, "required": [task.id]}
        forget = {"name": "forget", "description": "Forgets.", "parameters": {"type": "object", "properties": []}}
        return ({"name": "keep", "description": "Keeps.", "parameters": parameters}, forget)

    def world(self, task):
        return KeepWorld(task.data)

    def data_hash(self):
        return "0"


CUES = Omega.of(["schema_required", "schema_types", "schema_values", "feedback_error"]).to_json()


def played(name, *calls, **params):
    environment = Keep()
    episode = environment.open(name, {"leak_guard": True, **params}, Guard())
    start = episode.start()["state"][0]["content"]
    for call in calls:
        episode.step(environment.render(params.get("tool_prompt_mode", "hermes"), call), False)
    episode.step("Done.", False)
    return start, episode.evaluate({})


@pytest.mark.parametrize("mode", ["hermes", "compact"])
@pytest.mark.parametrize("name", KEPT)
def test_a_call_that_the_document_permits_reaches_the_world(name, mode):
    start, found = played(name, ("keep", {name: KEPT[name][1]}), omega=CUES, tool_prompt_mode=mode)
    assert found["labels"] == ["pass"]
    assert "one of" not in start.replace("one of 10, 25, 50", "")


@pytest.mark.parametrize("mode", ["hermes", "compact", "openai_fc"])
@pytest.mark.parametrize("name", BARE)
def test_a_document_without_parameters_permits_all(name, mode):
    _, found = played(name, ("keep", {"x": 1}), omega=CUES, tool_prompt_mode=mode)
    assert found["labels"] == ["pass"] and Keep().documents(name)[0]["parameters"] == {}


def test_a_call_that_it_does_not_permit_is_refused_with_what_is():
    _, found = played("page", ("keep", {"page": "25"}))
    assert found["labels"] == ["argument_mismatch"]


@pytest.mark.parametrize("call", [("keep", {"page": 10}), ("forget", {})], ids=["a zero", "a word"])
def test_an_outcome_without_an_error_is_a_success_whatever_its_text(call):
    _, found = played("page", call)
    assert found["labels"] == ["state_mismatch"]


def test_arguments_that_a_document_leaves_open_are_the_method_s_to_refuse():
    _, found = played("page", ("forget", {"now": True}))
    (call,) = found["evidence"][0].calls
    assert (call.violations, call.error) == ((), "signature")


def test_an_error_that_a_simulator_tells_in_words_alone_is_noted_as_one():
    task = next(task for task in load_tasks().values() if "TradingBot" in task.involved_classes)
    episode = BfclEnvironment().open(task.id, {"split": "train"}, Guard())
    episode.start()
    for _ in range(2):  # after the first nobody is logged in
        episode.step('<tool_call>\n{"name": "trading_logout", "arguments": {}}\n</tool_call>', False)
    call = episode.evidence()[0].calls[-1]
    assert (call.error, call.reported, call.failed) == (None, True, True), call.result
