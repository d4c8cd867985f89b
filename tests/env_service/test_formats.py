"""Messages are read as the benchmark's own handlers read them, without evaluating anything."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from bfcl_eval.model_handler.base_handler import BaseHandler

from env_service.environments.base import Guard
from env_service.environments.bfcl.catalog import available_tools, load_tasks, revealed_tools
from env_service.environments.bfcl.formats import format_names, get_format
from env_service.environments.registry import get_environment
from seal.method.interface.cues import Omega
from tests.env_service.bfcl_official import HANDLERS
from tests.env_service.bfcl_perturbations import perturbed, reference_calls


def official_calls(handler: BaseHandler, text: str) -> list[str]:
    """The handler's executable calls; none where it gives up, as the runner takes it."""
    try:
        usage = SimpleNamespace(prompt_tokens=0, completion_tokens=0)
        answer = SimpleNamespace(choices=[SimpleNamespace(text=text)], usage=usage)
        text = handler._parse_query_response_prompting(answer)["model_responses"]
        return [call.replace(", ", ",") for call in handler.decode_execute(text, has_tool_call_tag=False)]
    except Exception:  # the runner goes on to the next turn whatever was raised
        return []


def our_calls(mode: str, text: str) -> list[str]:
    calls = get_format(mode).parse(text).calls
    return [f"{n}({','.join(f'{k}={v!r}' for k, v in a.items())})".replace(", ", ",") for n, a in calls]


QWEN_TEXTS = [
    "Nothing to do.",
    "<tool_call>\n{}\n</tool_call>",
    '<tool_call>\n{"name": "ls"}\n</tool_call>',
    '<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>',
    '<tool_call>{"name": "ls", "arguments": {}}</tool_call>',
    '<tool_call>\n{"name": "ls", "arguments": "{\\"a\\": true}"}\n</tool_call>',
    '<tool_call>\n{"name": "ls", "arguments": "none"}\n</tool_call>',
    '<tool_call>\n{"name": "ls", "arguments": [1]}\n</tool_call>',
    '<tool_call>\n{"name": 5, "arguments": {"a": null}}\n</tool_call>',
    '<tool_call>\n{"name": ["ls"], "arguments": {}}\n</tool_call>',
    '<tool_call>\n[{"name": "ls", "arguments": {}}]\n</tool_call>',
    '<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>\n<tool_call>\n{"name": "pwd"}\n</tool_call>',
    '<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>\n<tool_call>\n{broken\n</tool_call>',
    '<think>\n<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>\n</think>\n\nno',
    '<think>hm</think><tool_call>\n{"name": "ls", "arguments": {"a": 1e999}}\n</tool_call>',
    '<tool_call>\n{"name": "ls", "arguments": {"a": 1}, "arguments": {"a": 2}}\n</tool_call>',
]
TOOLACE_TEXTS = [
    "I cannot do that.",
    "[ls()]",
    "ls()",
    "[ls(a='x', b=[1, 2], c=-3, d=None), pwd()]",
    "```[ls(a=True)]```",
    "[ls(a=b)]",
    "[ls('x')]",
    "[a.b.ls(x=1)]",
    "[ls(a={'k': 1})]",
    "[ls(a={'k': [1]})]",
    "[ls(a={})]",
    "[ls(a=x[0])]",
    "[ls(a=f())]",
    "[ls(a=(1, 2))]",
    "[ls(a=...)]",
    "[]",
    "",
    "[ls(a=1), 5]",
    "[ls(a=1",
]
TEXTS = {"bfcl_qwen_fc": QWEN_TEXTS, "toolace_official_prompt": TOOLACE_TEXTS}


@pytest.mark.parametrize("mode", HANDLERS)
def test_messages_are_read_as_the_packages_handler_reads_them(mode: str) -> None:
    for text in TEXTS[mode]:
        assert our_calls(mode, text) == official_calls(HANDLERS[mode], text), text


@pytest.mark.parametrize("mode", HANDLERS)
def test_damaged_calls_are_read_as_the_packages_handler_reads_them(mode: str) -> None:
    rng = random.Random(7)
    render = get_format(mode).render_call
    read = 0
    for task, _, _ in perturbed(seed=1, count=300):
        for call in (call for turn in reference_calls(task) for call in turn):
            text = render(*call)
            for _ in range(rng.randint(0, 2)):
                at = rng.randrange(len(text))
                text = text[:at] + rng.choice(["", "", "\n", '"', "'", "}", ",", " "]) + text[at + 1 :]
            expected = official_calls(HANDLERS[mode], text)
            assert our_calls(mode, text) == expected, text
            read += bool(expected)
    assert read > 300


REFUSED = {
    "bfcl_qwen_fc": ["<tool_call>\n{broken\n</tool_call>", '<tool_call>{"name": "ls", "arguments": {}}</tool_call>'],
    "compact": ["<tool_call>{</tool_call>", "<tool_call>", '<tool_call>{"name":"ls"}</tool_call>'],
    "compact_arguments": ["<tool_call>[", '<tool_call>{"arguments":{}}</tool_call>'],
    "toolace_official_prompt": [
        "[ls(a=1]",
        "[ls(a=2 * 3)]",
        "[cd(folder=pwd(x=1))]",
        "[ls(a=__import__('os').x(y=1))]",
    ],
}


@pytest.mark.parametrize("mode", format_names())
def test_what_was_meant_as_a_call_and_cannot_be_read_is_named(mode: str) -> None:
    parse = get_format(mode).parse
    for text in REFUSED[mode]:
        parsed = parse(text)
        assert not parsed.calls and parsed.refusals and all(r.endswith(".") for r in parsed.refusals), text
    for text in ("Done.", "I cannot do that.", "", "<answer>All done (see above).</answer>"):
        assert not parse(text).refusals


CD = '{"name": "cd", "arguments": {"folder": "x"}}'
OUTSIDE = [
    CD,
    f"```json\n{CD}\n```",
    f"I will do this now: {CD}",
    "{'name': 'cd', 'parameters': {'folder': 'x'}} is what I call.",
    '{"tool_calls": [{"function": {"name": "cd", "arguments": "{}"}}]}',
    'Action: {"action": "cd", "action_input": {"folder": "x"}}',
    "Let me see. [cd(folder='x')]",
    "First I go there.\ncd(folder='x')\nThen I look.",
    "Sure:\n\n```python\ncd(folder='x')\n```",
    "`cd(folder='x')`",
    "fly_to(city='x')",
    "<|python_tag|>cd.call(folder='x')",
]
READABLE = {"toolace_official_prompt": ("`cd(folder='x')`", "fly_to(city='x')")}
PROSE = [
    "I used `ls()` to list the files.",
    "I would need sort(file_name='x') for that.",
    "The car's status (see displayCarStatus()) is fine.",
    'Ticket {"id": 1, "name": "x"} was made.',
    'The order is {"name": "Apple", "price": 3}.',
    "I did this:\n- cd(folder='x')\n- ls()",
    "You typed\nprint('x')\nwhich does nothing.",
    "<think>\nls()\n</think>\n\nThere is nothing to do.",
]


@pytest.mark.parametrize("mode", format_names())
def test_calls_outside_the_format_are_refused_and_prose_about_tools_is_not(mode: str) -> None:
    parse = get_format(mode).parse
    for text in OUTSIDE:
        if text not in READABLE.get(mode, ()):
            assert not parse(text).calls and len(parse(text).refusals) == 1, text
    for text in PROSE:
        assert parse(text).refusals == () and parse(text).calls == (), text


@pytest.mark.parametrize("mode", [*format_names(), "toolace_fc", "openai_fc"])
def test_every_mode_plays_references_and_lets_the_interface_speak(mode: str) -> None:
    environment, render = get_environment("bfcl"), get_format(mode).render_call
    omega = Omega.of(["feedback_error", "schema_required"], version=3).to_json()
    for task in list(load_tasks().values())[::40]:
        params: dict[str, Any] = {"tool_prompt_mode": mode, "max_steps": 40}
        episode = environment.open(task.id, params, Guard())
        episode.start()
        for text in (text for turn in reference_calls(task) for text in [*(render(*call) for call in turn), "Done."]):
            answer = episode.step(text, False)
        assert answer["reward"] == 1.0, task.id
        plain = environment.open(task.id, params, Guard()).start()["state"]
        trained = environment.open(task.id, {**params, "omega": omega}, Guard())
        started = trained.start()["state"]
        assert started[0]["content"].startswith(plain[0]["content"]) and started[0] != plain[0]
        assert started[1] == plain[1]
        wrong = trained.step(render("cd", {"nowhere": 1}), False)["state"]
        told = environment.open(task.id, params, Guard())
        told.start()
        untold = told.step(render("cd", {"nowhere": 1}), False)["state"]
        assert wrong[-1]["content"].startswith(untold[-1]["content"]) and wrong[-1] != untold[-1]


def test_compact_arguments_tells_what_the_documents_tell_of_names() -> None:
    task = load_tasks()["multi_turn_miss_func_120"]
    tools = available_tools(task, 0)
    names, arguments = (get_format(mode).system(tools) for mode in ("compact", "compact_arguments"))
    assert arguments.startswith(f"{names}\nArguments: ")
    entries = arguments.removeprefix(f"{names}\nArguments: ").split("; ")
    assert [entry.split()[0] for entry in entries] == names.split()
    told = {tool["name"]: tool["parameters"] for tool in tools}
    for entry in entries:
        name, *listed = entry.split()
        required = told[name].get("required", [])
        assert listed[: len(required)] == required
        assert {each.removesuffix("?") for each in listed} == set(told[name]["properties"])
        assert all(each.endswith("?") for each in listed[len(required) :])
    turn = next(turn for turn in range(len(task.users)) if task.users[turn] is None)
    assert "Arguments: " in get_format("compact_arguments").reveal(revealed_tools(task, turn))


def test_the_long_prompts_of_evaluation_hold_nothing_of_the_interface() -> None:
    environment = get_environment("bfcl")
    for name in ("multi_turn_base_3", "multi_turn_miss_func_120"):
        plain = environment.open(name, {}, Guard()).start()
        empty = environment.open(name, {"omega": Omega.of().to_json()}, Guard()).start()
        assert plain["state"] == empty["state"]
        assert (plain["info"]["omega"], empty["info"]["omega"]["version"]) == (None, 0)
