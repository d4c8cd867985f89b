"""A policy that obeys a cue to the letter is understood by the parser of its prompt mode."""

import re

import pytest

from env_service.environments.bfcl.catalog import all_tools, available_tools, load_tasks
from env_service.environments.bfcl.formats import format_names, get_format
from seal.method.diagnosis.evidence import ActionEvidence, CallEvidence
from seal.method.interface.cues import Omega, catalogue
from seal.method.interface.feedback import observe_feedback
from seal.method.interface.observation import observe_start
from seal.method.interface.wording import placeholders, templates

TASK = load_tasks()["multi_turn_base_0"]
TOOLS = available_tools(TASK, 0)
SHAPES = {
    "bfcl_qwen_fc": r"<tool_call>\n.*\n</tool_call>",
    "compact": r"<tool_call>.*</tool_call>",
    "compact_arguments": r"<tool_call>.*</tool_call>",
    "toolace_official_prompt": r"\[.*\]",
}


def literal(text, mode, **real):
    """The one call that a text shows, with the real names in place of its placeholders."""
    (shown,) = re.findall(SHAPES[mode], text)
    for placeholder, value in real.items():
        assert placeholder in shown
        shown = shown.replace(placeholder, value)
    return shown


def spoken(mode, cue):
    """Everything that a cue adds to a dialogue of this mode."""
    form, omega = get_format(mode), Omega.of([cue])
    start = observe_start("", TOOLS, omega, "base", form.cue_wording)
    unreadable = ActionEvidence(refusals=("unreadable",))
    missing = ActionEvidence((CallEvidence("copy", {}, False, (), "unavailable", ""),))
    told = (
        observe_feedback("", failure, (missing,), TOOLS, omega, "base", form.cue_wording)
        for failure in (unreadable, missing)
    )
    return "\n".join((start, *told))


@pytest.mark.parametrize("mode", format_names())
def test_every_cue_that_shows_a_call_shows_one_that_the_parser_reads(mode):
    showing = {cue for cue in catalogue() if "TOOL" in spoken(mode, cue)}
    assert showing == ({"schema_format"} if mode.startswith("compact") else {"schema_format", "feedback_error"})
    form = get_format(mode)
    for cue in showing:
        message = literal(spoken(mode, cue), mode, TOOL="cd", ARGUMENT="folder", VALUE="a b's")
        if mode == "toolace_official_prompt":
            message = message.replace("'a b's'", '"a b\'s"')
        parsed = form.parse(message)
        assert parsed.calls == (("cd", {"folder": "a b's"}),) and not parsed.refusals


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("bfcl_qwen_fc", '<tool_call>\n{"name": "ls", "arguments": {"a": true}}\n</tool_call>'),
        ("toolace_official_prompt", "[ls(a=True), ls(a=True)]"),
        ("compact", '<tool_call>{"name":"ls","arguments":{"a":true}}</tool_call>'),
    ],
)
def test_what_the_cue_says_of_several_calls_and_of_truth_holds(mode, message):
    text = get_format(mode).cue_wording.call_format
    assert ("True, False and None as in Python" in text) == ("True" in message)
    assert ("several" in text) == (message.count("ls") > 1)
    parsed = get_format(mode).parse(message)
    assert parsed.calls and all(call == ("ls", {"a": True}) for call in parsed.calls) and not parsed.refusals


@pytest.mark.parametrize("mode", format_names())
def test_an_answer_as_the_cues_ask_for_it_makes_no_call(mode):
    assert get_format(mode).cue_wording.answer_format in spoken(mode, "feedback_answer")
    parsed = get_format(mode).parse("Which file do you mean?")
    assert parsed.calls == parsed.refusals == ()


@pytest.mark.parametrize("mode", format_names())
def test_the_tools_and_arguments_that_cues_name_can_be_called(mode):
    names = {tool["name"] for tool in all_tools(TASK)}
    told = spoken(mode, "feedback_tools").split("now: ")[-1].split("Tools: ")[-1].strip().rstrip(".")
    listed = set(re.split(r",? ", told))
    assert listed and listed <= names
    for tool in TOOLS:
        arguments = dict.fromkeys(tool["parameters"]["properties"], "v")
        message = get_format(mode).render_call(tool["name"], arguments)
        assert get_format(mode).parse(message).calls == ((tool["name"], arguments),)


def test_no_wording_asks_for_a_format_or_for_text_before_a_call():
    for text in templates():
        assert not re.search(r"JSON|<tool|\[TOOL|parameters|before the call: write|text before", text), text
        assert set(placeholders(text)) <= {
            "call_format",
            "answer_format",
            "problems",
            "history",
            "tools",
            "name",
            "detail",
            "count",
        }
