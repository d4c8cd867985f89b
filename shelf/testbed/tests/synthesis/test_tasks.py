"""Kept tasks: the verifier needs every call, the same seed gives the same bytes, ids are the content's."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_service.environments.bfcl.catalog import CLASSES, available_tools, load_tasks
from env_service.environments.bfcl.splits import side_of
from env_service.environments.bfcl.task_file import MadeTask, Provenance, write_task_file
from env_service.environments.bfcl.tools import parse_reference
from seal.records.benchmark import parse_task_id
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from shelf.testbed.synthesis.operations import OPERATIONS
from shelf.testbed.synthesis.phrases import phrasebook
from shelf.testbed.synthesis.sampler import CATEGORY_KINDS, SamplerSettings
from shelf.testbed.synthesis.verify import passes, problem_of
from tests.support.references import play_reference


def test_every_kept_task_passes_and_fails_without_any_one_call(tasks):
    for made in tasks:
        turns = [[parse_reference(call) for call in calls] for calls in made.reference]
        assert passes(made.task, turns), made.id
        for turn, calls in enumerate(turns):
            for index in range(len(calls)):
                fewer = [list(each) for each in turns]
                del fewer[turn][index]
                assert not passes(made.task, fewer), (made.id, turn, index)


def test_the_references_are_played_to_the_end_by_the_services_episodes(tasks):
    for made in tasks[::10]:
        messages = play_reference(made.task)
        said = [message["content"] for message in messages if message["role"] == "user"]
        assert all(user in said for user in made.users if user is not None)


def test_a_demonstration_is_the_reference_with_failures_before_it(tasks):
    for made in tasks:
        for demonstrated, reference in zip(made.demonstration, made.reference, strict=True):
            remaining = iter(demonstrated)
            assert all(call in remaining for call in reference), made.id


@pytest.mark.parametrize("level", ["train", "paths"])
def test_the_same_seed_gives_the_same_file_to_the_byte(tmp_path, level):
    for name, seed in (("one", 3), ("again", 3), ("other", 4)):
        write_task_file(synthesise(Grammar(), 25, seed, level), tmp_path / name)
    one, again, other = ((tmp_path / name).read_bytes() for name in ("one", "again", "other"))
    assert one == again != other


def test_a_longer_file_begins_with_the_shorter_one():
    short, long = (tuple(synthesise(Grammar(), count, 0)) for count in (5, 12))
    assert long[:5] == short


CHANGES = {
    "users": lambda made: {"users": (*made.users[:-1], f"{made.users[-1]} Please.")},
    "reference": lambda made: {"reference": (*made.reference[:-1], ())},
    "config": lambda made: {"config": {**made.config, "MathAPI": {"x": 1}}},
    "hidden": lambda made: {"hidden": (*made.hidden, "ls")},
    "withheld": lambda made: {"withheld": {**made.withheld, 1: ("ls",)}},
    "classes": lambda made: {"classes": (*made.classes, "MathAPI")},
    "level": lambda made: {"level": "values"},
}


@given(change=st.sampled_from(sorted(CHANGES)), number=st.integers(0, 79))
def test_the_id_changes_with_the_content_and_only_with_it(tasks_by_level, change, number):
    made = tasks_by_level["train"][number]
    assert made.content_id() == made.id
    assert made.model_copy(update=CHANGES[change](made)).content_id() != made.id
    described = {"kinds": ("login",), "provenance": Provenance(writer="other", seed=9, number=9)}
    assert made.model_copy(update=described).content_id() == made.id


def test_a_task_survives_its_line(tasks):
    for made in tasks[::7]:
        back = MadeTask.model_validate_json(made.model_dump_json())
        assert back == made and back.task == made.task


def test_ids_tell_category_and_side_and_every_task_is_a_scenario_of_its_own(tasks):
    for made in tasks:
        category, scenario = parse_task_id(made.id)
        assert category == f"synth_{made.level}_{made.category}" == made.task.category
        assert scenario == made.task.scenario >= 200
        assert side_of(made.id) == ("train" if made.level == "train" else "eval")
    assert len({made.task.scenario for made in tasks}) == len(tasks)


def test_kinds_say_what_the_task_has(tasks):
    seen = Counter(kind for made in tasks for kind in made.kinds)
    assert set(seen) == {
        "missing_function",
        "missing_parameter",
        "long_context",
        "login",
        "taken_name",
        "elsewhere",
        "order_of_steps",
        "funds",
        "capacity",
        "completed",
        "results",
        "few_tools",
    }
    for made in tasks:
        assert (CATEGORY_KINDS.get(made.category) in made.kinds) == (made.category != "base")
        assert ("few_tools" in made.kinds) == bool(made.hidden)
        fails_first = made.demonstration != made.reference
        recovering = {"login", "taken_name", "elsewhere", "order_of_steps", "funds", "capacity", "completed"}
        assert fails_first == bool(recovering & set(made.kinds)), made.id


def test_hidden_tools_are_never_shown_and_needed_ones_are(tasks):
    for made in tasks:
        for turn, calls in enumerate(made.reference):
            shown = {tool["name"] for tool in available_tools(made.task, turn)}
            assert not shown & set(made.hidden)
            assert {parse_reference(call)[0] for call in calls} <= shown
        for turn, names in made.withheld.items():
            assert not {tool["name"] for tool in available_tools(made.task, turn - 1)} & set(names)


def test_every_operation_can_be_done_and_said():
    assert set(OPERATIONS) == set(phrasebook().say)
    assert len(OPERATIONS) == 147
    assert {operation.class_name for operation in OPERATIONS.values()} == set(CLASSES)


@pytest.mark.parametrize("class_name", CLASSES)
def test_every_simulator_gives_tasks_of_its_own(class_name):
    settings = SamplerSettings({2: 1, 3: 1}, (class_name,))
    for made in synthesise(Grammar(), 10, 0, settings=settings):
        assert made.classes == (class_name,)


def test_a_task_that_does_not_need_a_call_is_refused(tasks):
    made = next(made for made in tasks if made.classes[0] == "GorillaFileSystem" and len(made.users) == 2)
    told_before = made.model_copy(update={"reference": (("pwd()",), ("pwd()", "ls()")), "demonstration": ()})
    assert problem_of(told_before.task) == "passes without its call pwd()"
    wrong = made.model_copy(update={"reference": tuple(() for _ in made.reference)})
    assert problem_of(wrong.task) == "asks for no call"


def test_nothing_is_made_from_the_benchmarks_tasks(tasks):
    texts = {user for task in load_tasks().values() for user in task.users if user}
    states = [state for task in load_tasks().values() for state in task.initial_config.values() if state]
    for made in tasks:
        assert not texts & set(made.users)
        assert not any(state in states for state in made.config.values() if state)


def test_an_evaluation_task_is_refused_as_a_source():
    held_out = next(task for task in load_tasks() if side_of(task) == "eval")
    with pytest.raises(ValueError, match="evaluation side"):
        Provenance(writer="x", seed=0, number=0, source=held_out)


def test_the_writer_depends_on_its_generator_only(tasks_by_level):
    again = tuple(synthesise(Grammar(), 10, 7, "phrases"))
    random.seed(1)
    assert again == tasks_by_level["phrases"][:10]
