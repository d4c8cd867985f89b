"""A call gives the text that the package's own execution of its source gives."""

import random
from typing import Any

import pytest
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
from bfcl_eval.model_handler.utils import convert_to_function_call

from env_service.environments.base import Guard
from env_service.environments.bfcl.catalog import Task, all_tools, load_tasks
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.tools import Toolbox, parse_reference
from seal.method.interface.cues import Omega, catalogue
from tests.env_service import bfcl_official as official
from tests.env_service.bfcl_perturbations import known_calls

HOSTILE: list[Any] = [
    *(None, True, 1, -1, 0, 2.5, 10**30, float("inf"), float("nan"), [float("-inf")], {}, [], [[]]),
    *("", "x", "a (b)", "use ls() now", "cd (x) and mv(y)", 'it\'s "q"(1)', "\\ (x)", "\n(", "\t(", "ü (x)"),
    *("ls (", "f\u00a0(x)", "x\ud800(y)", "9" * 50, "..", "/", "a/b", ".hidden"),
    *([1, "a (b)"], {"k (x)": "v (y)"}),
]


def officially(task: Task, calls: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """The texts of the package's own execution."""
    sources = convert_to_function_call([{name: arguments} for name, arguments in calls])
    config, classes = official.entry(task)["initial_config"], list(task.involved_classes)
    try:
        run = multi_turn_utils.execute_multi_turn_func_call
        return run(sources, config, classes, "model", task.id, task.long_context)[0]
    finally:
        for name in [name for name in vars(multi_turn_utils) if name.endswith("_instance")]:
            del vars(multi_turn_utils)[name]


def test_hostile_arguments_give_the_packages_own_texts() -> None:
    rng, tasks = random.Random(3), list(load_tasks().values())
    for _ in range(200):
        task, calls = rng.choice(tasks), []
        for _ in range(rng.randint(1, 4)):
            name = rng.choice([tool["name"] for tool in all_tools(task)])
            arguments = dict(rng.choice(known_calls().get(name, [(name, {})]))[1])
            for key in [*arguments, *(["extra"] if rng.random() < 0.1 else [])]:
                if rng.random() < 0.5:
                    arguments[key] = rng.choice(HOSTILE)
            if arguments and rng.random() < 0.1:
                del arguments[rng.choice(list(arguments))]
            calls.append((name, arguments))
        box = Toolbox(task)
        assert [box.call(*call).text for call in calls] == officially(task, calls), calls


@pytest.mark.parametrize("value", [("a",), {1: "a"}, b"a", 1j, {(1, 2): 3}], ids=repr)
def test_values_that_json_does_not_hold_reach_the_simulators(value: Any) -> None:
    task = load_tasks()["multi_turn_base_0"]
    episode = BfclEnvironment().open(task.id, {"tool_prompt_mode": "toolace_official_prompt"}, Guard())
    step = episode.step(f"[cd(folder={value!r})]", False)
    assert [message["content"] for message in step["state"]] == officially(task, [("cd", {"folder": value})])
    episode.step("Done.", False)
    assert episode.evaluate({"stop": "length"})["evidence"][0].blame == "own"


CALLS = ["edit_ticket(ticket_id=1, updates={1: 2})", "create_ticket(title='x', priority=1j)"]


@pytest.mark.parametrize("call", [*CALLS, f"get_ticket(ticket_id=0x{'f' * 5000})"], ids=lambda call: call[:20])
def test_a_call_with_a_value_that_only_python_can_write_is_judged_and_answered(call: str) -> None:
    task = next(task for task in load_tasks().values() if "TicketAPI" in task.involved_classes)
    params = {"leak_guard": True, "omega": Omega.of([*catalogue()]).to_json()}
    episode = BfclEnvironment().open(task.id, {"tool_prompt_mode": "toolace_official_prompt", **params}, Guard())
    assert episode.step(f"[{call}]", False)["state"]
    (action,) = episode.evidence()[0].actions
    assert action.refusals or action.calls[0].violations


NO_CALLS = ["ls(", "ls", "ls(); pwd()", "os.system('x')", "print(1)", "ls(a=open('x'))", "cd(1, 2)"]


@pytest.mark.parametrize("call", NO_CALLS)
def test_a_reference_that_is_no_plain_call_is_refused(call: str) -> None:
    with pytest.raises(ValueError):
        parse_reference(call)


def test_positional_arguments_are_named_after_the_methods_signature() -> None:
    # The document lists insurance_cost before booking_id, the method the other way round.
    name, arguments = parse_reference("purchase_insurance('token', 'basic', 'booking', 5.0, card_id='card')")
    assert (name, arguments["booking_id"], arguments["insurance_cost"]) == ("purchase_insurance", "booking", 5.0)


def test_nesting_is_cut_where_pythons_own_parser_cuts_it() -> None:
    box = Toolbox(load_tasks()["multi_turn_base_0"])
    for depth, word in ((199, "unhashable"), (200, "too many nested parentheses")):
        value: Any = "x"
        for _ in range(depth):
            value = [value]
        assert word in box.call("mkdir", {"dir_name": value}).text


def test_a_mention_is_seen_by_no_other_episode() -> None:
    task = next(task for task in load_tasks().values() if "TwitterAPI" in task.involved_classes)
    texts = []
    for _ in range(2):
        box = Toolbox(task)
        for instance in box.instances.values():
            instance.authenticated = True
        texts.append(box.call("post_tweet", {"content": "x"}).text)
        box.call("mention", {"tweet_id": box.instances["TwitterAPI"].tweet_counter - 1, "mentioned_usernames": ["@a"]})
    assert '"mentions": []' in texts[0] and texts == [texts[0]] * 2
