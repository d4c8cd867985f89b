"""The leak guard: what it finds, what it must not take for a leak, and its figures on generated cases."""

import json
import re

import pytest

from env_service.environments.bfcl.catalog import available_tools, documents, load_tasks, revealed_tools
from env_service.environments.bfcl.formats import format_names, get_format
from seal.method.interface.guard import InterfaceLeak, LeakGuard
from seal.method.interface.secrets import reference_secrets
from seal.method.interface.wording import PromptWording, fill, templates, wording
from tests.support.leak_cases import episode_guard, judged

MODE = PromptWording("Write [TOOL(ARGUMENT='VALUE')].")
CALLS = [("place_order", {"symbol": "TSLA", "price": 1500.5, "amount": 17, "confirmed": True, "day": "2024-03-09"})]
STATES = [{"account": {"balance": 10007.0}, "stocks": {"QWXZ": {}}}]
NOTE = "Meet the quarterly planning committee on the third floor"


def guard(public=(), documents=(), **changes):
    known = {"calls": CALLS, "results": ['{"order_id": 98214}'], "states": STATES, "tools": ["cancel_order"]} | changes
    made = LeakGuard(reference_secrets(**known), documents, MODE)
    made.saw(*public)
    return made


def told(text, **changes):
    """Every leak of a text that the interface adds."""
    return set(guard(**changes).leaks("OBS", f"OBS\n{text}"))


# --- what it finds -------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "use TSLA",
        "use tsla",
        "use T\u200bS\u00adLA",
        "use \uff34\uff33\uff2c\uff21",
        "use (TSLA)!",
        "the price is 1500.5",
        "the price is 1,500.50",
        "the price is $1500.500",
        "the price is 1.5005e3",
        "the order will be 98214",
        "the balance becomes 10,007",
        "the balance becomes 10007.0!",
        "a stock such as QWXZ",
        "on 2024-03-09",
        "then cancel_order is there",
        'call {"name": "place_order", "arguments": {"symbol": "TSLA"}}',
    ],
)
def test_a_secret_stops_the_run(text):
    with pytest.raises(InterfaceLeak, match="which only the reference knows"):
        guard().check("OBS", f"OBS\n{text}")


@pytest.mark.parametrize("text", ["set confirmed to true", "try amount=17", "about the quarterly meeting"])
def test_a_common_value_and_a_part_of_a_value_are_no_secrets(text):
    assert told(text, calls=[*CALLS, ("send_message", {"message": NOTE})]) == set()


def test_changing_the_observation_itself_is_a_leak():
    with pytest.raises(InterfaceLeak, match="a changed observation"):
        guard().check("OBS", "SBO")


def test_a_cue_that_tells_a_value_is_caught_in_an_episode():
    task = load_tasks()["multi_turn_base_0"]
    with pytest.raises(InterfaceLeak, match="final_report"):
        episode_guard(task, MODE).check("S", "S\nFor example, put it into final_report.pdf.")


# --- what is public ------------------------------------------------------------------


def test_what_dialogue_or_documents_told_is_no_leak():
    seen = guard(["Buy 17 shares of tsla for 1,500.50 on 2024-03-09"])
    assert seen.leaks("OBS", "OBS\nTSLA, 17 shares, 1500.5, 2024-03-09") == ()
    assert seen.leaks("OBS", "OBS\n98214") == ("98214",)
    seen.check("order 98214", "order 98214\nso 98214")
    assert seen.leaks("OBS", "OBS\n98214") == ()


def test_a_withheld_tool_is_public_from_its_reveal_on():
    task = next(task for task in load_tasks().values() if task.withheld)
    (turn, (name, *_)), *_ = sorted(task.withheld.items())
    watching = episode_guard(task, MODE)
    with pytest.raises(InterfaceLeak, match=name):
        watching.check("OBS", f"OBS\nTools that exist now: {name}.")
    watching.reveal(revealed_tools(task, turn))
    watching.check("OBS", f"OBS\nTools that exist now: {name}.")
    written = episode_guard(task, MODE)
    written.saw_calls([(name, {})])
    written.check("OBS", f"OBS\n{name} is not one of the available tools.")


def test_text_that_the_policy_escaped_is_its_own():
    watching = guard(calls=[("touch", {"file_name": "größe"})])
    watching.saw('{"name": "touch", "arguments": {"gr\\u00f6\\u00dfe": 1}}')
    watching.saw_calls([("touch", {"größe": 1})])
    watching.check("OBS", "OBS\ntouch: größe is not an argument of this tool.")


def test_indices_of_lists_and_counted_errors_are_no_numbers_of_the_reference():
    known = {"calls": [("mean", {"numbers": list(range(2000))})], "documents": documents("MathAPI")}
    broken = "mean was called with arguments that break its schema: "
    for text in (
        f"{broken}numbers[0] must be a number; numbers[345] must be a number.",
        f"{broken}numbers[12][3] must be a whole number.",
        fill(wording()["history"]["row"]["text"], {"count": "3"}),
    ):
        assert told(text, **known) == set()


@pytest.mark.parametrize("mode", format_names())
def test_fixed_wording_and_the_schema_of_visible_tools_never_alarm(mode):
    """Every word and number of them may be a secret."""
    own = get_format(mode).cue_wording
    task = load_tasks()["multi_turn_base_0"]
    tools = available_tools(task, 0)
    texts = [*templates(), *own.values().values()]
    words = {word for text in (*texts, json.dumps(tools)) for word in re.findall(r"\w+", text)}
    secrets = reference_secrets([("f", {f"key{i}": word for i, word in enumerate(sorted(words))})], [*texts])
    watching = LeakGuard(secrets, tools, own)
    for text in texts:
        filled = re.sub(r"\{count\}", "12", re.sub(r"\{(?!count)\w+\}", tools[0]["name"], text))
        assert watching.leaks("OBS", f"OBS\n{filled}") == (), text


def test_numbers_in_names_and_versions_are_not_numbers():
    assert told("see file1500.5x and v1.98214b", documents=documents("MathAPI")) == set()


# --- the figures ---------------------------------------------------------------------


def test_no_alarm_on_what_the_interface_adds_and_recall_on_what_leaks():
    """Over more tasks: python -m tests.support.leak_cases."""
    clean, leaks = judged(step=20)
    assert clean.total() > 350 and clean[True] == 0
    total = sum(verdicts.total() for verdicts in leaks.values())
    assert total > 200 and sum(verdicts[False] for verdicts in leaks.values()) <= 0.03 * total
    for kind in ("a value as it is", "a whole call", "a key of the state", "a tool that is withheld"):
        assert leaks[kind][True] == leaks[kind].total() > 0, kind
