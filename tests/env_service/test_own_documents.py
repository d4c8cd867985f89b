"""An own environment whose tools' documents are JSON Schema as real programs write it."""

import re
from dataclasses import replace
from enum import Enum

import numpy
import pytest

from env_service.channel import ActivityPage
from env_service.environments import registry
from env_service.environments.base import Guard, UserFault
from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.kit.environment import ToolEnvironment
from env_service.environments.kit.tasks import Check, Outcome, ToolTask, UserPart
from env_service.environments.kit.tool_calls import entry, write_message
from env_service.environments.kit.worlds import MethodWorld, ToolError
from env_service.host import Host
from env_service.protocol import ENVIRONMENT_FAILED
from seal.method.interface.cues import Omega, catalogue

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


def test_a_text_of_an_enum_reads_as_its_value_and_what_json_cannot_hold_is_named():
    class Kind(str, Enum):  # noqa: UP042 - whose members format by name
        WORK = "work"

    class Telling(Rough):
        def tool_notes_keep(self, x):
            return Kind.WORK if x == "a" else {x}

    environment = Own(["a"], (("notes.keep", {"x": "a"}),), world=Telling)
    told, found = environment.played(("notes.keep", {"x": "a"}))
    assert "work" in told[-1] and "WORK" not in told[-1] and type(found["evidence"][0].calls[0].result) is str
    with pytest.raises(TypeError, match=r"keep returns {'b'}, which is neither text nor JSON"):
        environment.played(("notes.keep", {"x": "b"}))


def test_arguments_that_a_document_leaves_open_are_the_method_s_to_refuse():
    _, found = played("page", ("forget", {"now": True}))
    (call,) = found["evidence"][0].calls
    assert (call.violations, call.error) == ((), "signature")


ONE = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
TAGS = {"type": "object", "properties": {"tags": {"type": "array"}, "tag": {"type": "string"}}}
PIPE = {"type": "array", "items": {"enum": ['5" pipe', "other"]}}


class Rough(MethodWorld):
    """Keeps what it is given without a copy, and refuses in words that a simulator of the benchmark uses too."""

    refuses = ""

    def __init__(self, wanted=None):
        self.wanted, self.tags = wanted, []

    def tool_set_tags(self, tags):
        self.tags = tags
        return "ok"

    def tool_add_tag(self, tag):
        self.tags.append(tag)
        return "ok"

    def tool_notes_keep(self, x, **more):
        if self.refuses:
            raise ToolError(self.refuses)
        self.tags = [x]
        return "ok"

    def check(self, turn, calls):
        return Check(state_match=self.tags == self.wanted)


class Own(Keep):
    """Two turns with these references and documents; the second asks for nothing unless it has calls."""

    name, writes = "own", frozenset({"set_tags", "add_tag", "notes.keep"})

    def __init__(self, wanted, *turns, parameters=ONE, world=Rough, strict=True):
        self.wanted, self.turns, self.parameters, self.made, self.strict = wanted, turns, parameters, world, strict

    def load(self):
        return [ToolTask("t", "all", None, "t", ("Go on.",) * len(self.turns), self.turns, self.wanted)]

    def tools(self, task):
        tags = [{"name": name, "description": "", "parameters": TAGS} for name in ("set_tags", "add_tag")]
        return (*tags, {"name": "notes.keep", "description": "Keeps.", "parameters": self.parameters})

    def world(self, task):
        return self.made(task.data)

    def played(self, *messages, **params):
        episode = self.open("t", {"leak_guard": True, "omega": EVERY, **params}, Guard())
        state = episode.start()["state"]
        for message in messages:
            text = message if isinstance(message, str) else self.render("hermes", message)
            state += episode.step(text, False)["state"]
        return [each["content"] for each in state], episode.evaluate({})


EVERY = Omega.of(list(catalogue())).to_json()


@pytest.mark.parametrize("argument", ["self", "name", "arguments", "method", "", "class", "a b"])
def test_no_name_of_an_argument_costs_the_rollout(argument):
    environment = Own(["a"], (("notes.keep", {"x": "a"}),))
    _, found = environment.played(("notes.keep", {"x": "a", argument: "b"}))
    (call,) = found["evidence"][0].calls
    assert call.error == ("signature" if argument == "self" else None), call.result


@pytest.mark.parametrize("tool", ["\u00b5g", "cafe\u0301", "जोड़ें", "list.all", "list-all", "a b"])
def test_a_tool_runs_as_the_method_that_python_reads_its_name_as(tool):
    name, scope = re.sub("[-. ]", "_", tool), {"MethodWorld": MethodWorld}
    exec(f"class Named(MethodWorld):\n    def tool_{name}(self): return 'ran'", scope)
    assert scope["Named"]().call(tool, {}).text == "ran"


def test_a_world_that_keeps_and_changes_what_it_is_given_changes_no_evidence_and_no_reference():
    calls = ("set_tags", {"tags": ["a"]}), ("add_tag", {"tag": "b"})
    environment = Own(["a", "b"], calls, (("set_tags", {"tags": ["c"]}),))
    for _ in range(2):
        _, found = environment.played(*calls, "Done.", ("add_tag", {"tag": "c"}), "Done.")
        assert [call.arguments for call in found["evidence"][0].calls] == [{"tags": ["a"]}, {"tag": "b"}]
        assert environment.reference("t")[0] == calls
        assert [turn.blame for turn in found["evidence"]] == [None, "own"]


@pytest.mark.parametrize("text", ["<tool_call>", "<tool_response>", "</tool_response>", "[keep(x='y')]"])
def test_an_argument_may_hold_the_format_s_own_words(text):
    _, found = Own([text], (("notes.keep", {"x": text}),)).played(("notes.keep", {"x": text}), "Done.")
    assert (found["labels"], found["evidence"][0].actions[0].refusals) == (["pass"], ())


@pytest.mark.parametrize(
    "answer",
    [
        '{"name": "Ann", "input": "form A"}',
        'It is {"name": "config", "parameters": {"a": 1}}.',
        '{"action": "refund", "args": "all"}',
        '{"name": "Bob", "arguments": "weak"}',
        "f(x)",
        '```python\nprint("x")\n```',
    ],
)
def test_an_answer_in_json_or_code_is_no_call(answer):
    _, found = Own(["a"], (), (("notes.keep", {"x": "a"}),)).played(answer, ("notes.keep", {"x": "a"}), "Done.")
    assert found["labels"] == ["correct_abstention", "pass"]


@pytest.mark.parametrize(
    "call",
    [
        '{"name": "notes.keep", "input": {"x": "a"}}',
        '{"name": "keeps", "arguments": {"x": "a"}}',
        '{"tool_calls": [{"function": {"name": "keeps", "arguments": "{}"}}]}',
        "notes.keep('a')",
        "keeps(x='a')",
    ],
)
def test_what_only_a_call_says_is_one(call):
    _, found = Own(["a"], (), (("notes.keep", {"x": "a"}),)).played(call, "Done.", omega=None)
    assert found["labels"][0] == "invalid_tool_call"


@pytest.mark.parametrize(
    "words",
    ['{"error": 404, "why": "no such user"}', "the door must be open first", '{"success": false}', "path not allowed"],
)
def test_the_words_of_an_own_tool_s_error_are_not_read_as_the_benchmark_s(words):
    class Refusing(Rough):
        refuses = words

    told, _ = Own(["a"], (("notes.keep", {"x": "a"}),), world=Refusing).played(("notes.keep", {"x": "a"}))
    assert "notes.keep ran and reported an error: read its message" in told[-1]


CLOSED = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("parameters", "takes", "shown"),
    [
        (CLOSED, "no arguments", "notes.keep()"),
        ({}, "what its document says", "notes.keep(...)"),
        ({"type": "object"}, "what its document says", "notes.keep(...)"),
        ({**CLOSED, "additionalProperties": {"type": "string"}}, "what its document says", "notes.keep(...)"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}}, "what its document says", "notes.keep(...)"),
        ({**CLOSED, "properties": {"y": True}, "required": ["y"]}, "y", "notes.keep(y)"),
    ],
)
def test_what_a_tool_takes_is_told_as_far_as_its_document_lists_it(parameters, takes, shown):
    environment = Own(["a"], (("notes.keep", {"x": "a"}),), parameters=parameters)
    told, _ = environment.played(("notes.keep", {"y": "b"}))
    assert f"notes.keep did not accept its arguments; it takes {takes}." in told[-1]
    start, _ = environment.played(tool_prompt_mode="compact")
    assert shown in start[0]


@pytest.mark.parametrize("strict", [True, False])
def test_a_value_of_the_document_that_json_escapes_is_no_secret(strict):
    class Refusing(Rough):
        refuses = "no."

    parameters = {"type": "object", "properties": {"a": {"type": "string"}, "x": PIPE}}
    call = ("notes.keep", {"a": 1, "x": ["zinc"]})
    reference = (("notes.keep", {"x": ['5" pipe']}),)
    told, _ = Own(["a"], reference, parameters=parameters, world=Refusing, strict=strict).played(call)
    assert 'must be one of: 5" pipe, other' in told[-1]


@pytest.mark.parametrize(("given", "label"), [(numpy.bool_(True), "pass"), (numpy.bool_(False), "state_mismatch")])
def test_booleans_of_numpy_are_comparisons(given, label):
    class Compared(Rough):
        def check(self, turn, calls):
            return Check(state_match=given)

    _, found = Own(["a"], (("notes.keep", {"x": "a"}),), world=Compared).played(("notes.keep", {"x": "b"}), "Done.")
    assert found["labels"] == [label]


@pytest.mark.parametrize("given", ["yes", [1], 2, len])
def test_what_is_no_boolean_is_no_comparison(given):
    with pytest.raises(TypeError, match=r"Check.state_match is .*: give True, False or None\."):
        Check(state_match=given)


@pytest.mark.parametrize("given", [("ok", False), ("ok", ""), ("no", True), ("no", "timeout"), ({"a": 1},), (None,)])
def test_what_names_no_class_of_errors_is_no_error(given):
    with pytest.raises(TypeError, match="its error None or one of unavailable, signature, execution, deadline"):
        Outcome(*given)


def test_one_text_is_not_taken_for_its_letters():
    for forgotten in (lambda: Check(absent=("keep")), lambda: UserPart("Ask.", stops=("###STOP###"))):
        with pytest.raises(TypeError):
            forgotten()


def test_a_group_with_tasks_on_one_side_and_on_neither_is_held_out():
    class Sides(Keep):
        def load(self):
            calls, sides = ((("keep", {}),),), ("train", None, "eval")
            return [ToolTask(f"{side}", "all", side, side or "train", ("Go.",), calls) for side in sides]

    class Shared(Sides):
        def load(self):
            return [replace(task, group="all") for task in super().load()]

    assert [made().splits()["default"].held_out for made in (Sides, Shared)] == [True, False]


class Talks(Own):
    """A user whom a model plays, and a tool that ends the turn."""

    stop_tool = "done"

    def tools(self, task):
        return (*super().tools(task), {"name": "done"})

    def user(self, task):
        return UserPart("Ask.")


def test_a_turn_that_the_stop_tool_ends_is_over_for_its_user_too():
    environment = Talks([], (("notes.keep", {"x": "a"}),))
    episode, done = environment.open("t", {"user": True}, Guard()), environment.closing("hermes")
    with pytest.raises(UserFault, match="before the policy has answered"):
        episode.hear("###STOP###")
    for said in ("Go on.", "Still there?"):
        assert episode.hear(said)["state"] and episode.step(done, False)["user"]
    assert episode.hear("###STOP###")["is_terminated"]
    assert [turn.judged for turn in episode.evidence()] == ["passed", "dialogue"]


def test_a_stop_tool_with_blanks_around_its_name_ends_the_turn_like_any_other_tool_is_called():
    keep = ("notes.keep", {"x": "a"})
    _, found = Talks(["a"], (keep,)).played(keep, ("done ", {}))
    assert found["labels"] == ["pass"] and found["valid"]


def test_the_stop_tool_after_an_error_gives_up_like_an_answer_does():
    class Refusing(Rough):
        refuses = "no."

    environment = Talks(["a"], (("notes.keep", {"x": "a"}),), world=Refusing)
    _, found = environment.played(environment.reference("t")[0][0], environment.closing("hermes"))
    assert found["labels"] == ["recovery_failure"] and len(found["evidence"][0].actions) == 2


def test_a_call_of_the_user_that_breaks_the_tools_document_is_an_error_that_the_user_hears():
    class Shouting(Rough):
        def tool_notes_keep(self, x):
            self.tags = [x.upper()]
            return "ok"

    class Keeps(Talks):
        def user(self, task):
            return UserPart("Ask.", tools=({"name": "notes.keep", "parameters": ONE},))

    episode = Keeps(["A"], (("notes.keep", {"x": "a"}),), world=Shouting).open("t", {"user": True}, Guard())

    def heard(**arguments):
        (message,) = episode.hear(write_message("", [entry("notes.keep", arguments, "c")]))["user"]
        return message["content"]

    assert all(heard(**wrong).startswith("Error: ") for wrong in ({"x": 5}, {"y": "a"}))
    assert heard(x="a") == "ok"


def test_the_tools_of_a_user_need_no_description():
    opening = UserPart("Ask.", tools=({"name": "look"},)).opening()
    (tool,) = opening["tools"]
    assert tool["function"] == {"name": "look", "description": "", "parameters": {}}


@pytest.mark.parametrize("method", ["world", "user", "tools", "instructions", "task_secrets"])
def test_a_value_error_of_an_author_s_code_is_no_wrong_request(method, monkeypatch):
    def spoilt(*_):
        raise ValueError("not enough values to unpack")

    environment, host = Talks([], (("notes.keep", {"x": "a"}),)), Host(ActivityPage(ActivityPage.allocate()))
    monkeypatch.setitem(registry._LOADED, "own", environment)
    monkeypatch.setattr(environment, method, spoilt)

    def created(task, **params):
        given = {"user": True, "leak_guard": True, "omega": EVERY, **params}
        return host.handle("create", "e", {"env_type": "own", "task_id": task, "params": given})

    header, reason = created("t")
    assert header == {"ok": False, "code": ENVIRONMENT_FAILED} and b"not enough values" in reason
    assert created("no such task")[0] == created("t", turns=0)[0] == {"ok": False}


def test_an_error_that_a_simulator_tells_in_words_alone_is_noted_as_one():
    task = next(task for task in load_tasks().values() if "TradingBot" in task.involved_classes)
    episode = BfclEnvironment().open(task.id, {"split": "train"}, Guard())
    episode.start()
    for _ in range(2):  # after the first nobody is logged in
        episode.step('<tool_call>\n{"name": "trading_logout", "arguments": {}}\n</tool_call>', False)
    call = episode.evidence()[0].calls[-1]
    assert (call.error, call.reported, call.failed) == (None, True, True), call.result
