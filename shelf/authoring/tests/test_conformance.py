"""The conformance suite passes on what conforms, and each check fails on exactly what it looks for."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from typer.testing import CliRunner

from env_service.environments.registry import get_environment
from seal.launch.checks import preflight
from seal.launch.recipe import read_recipe
from seal.system.paths import HOME
from shelf.authoring.checks import CHECKS
from shelf.authoring.cli.env import app
from shelf.authoring.conformance import Finding, conformance
from shelf.authoring.scaffold import write_package
from shelf.authoring.tests import broken_environments

HERE = broken_environments.__name__
BROKEN = {
    "tasks and splits": (broken_environments.SharedGroup, "tasks of the group 'words' are on both sides"),
    "documents": (
        broken_environments.Stricter,
        "the document of say permits [], its method does not: missing a required",
    ),
    "determinism": (broken_environments.Random, "the answer to message 2 differs: state[0].content was"),
    "replay": (broken_environments.OfThisProcess, "played in another process: the answer to message 2 differs"),
    "isolation": (broken_environments.Shared, "interleaved with other episodes: the answer to message"),
    "idempotence": (broken_environments.Counting, "evaluate differs when it is asked twice"),
    "bad input": (broken_environments.Lenient, "an unknown task: it is accepted"),
    "any message": (broken_environments.Stumbling, "IndexError is raised"),
    "deadlines": (broken_environments.Unguarded, "2 calls were made, 0 of them through guard.run"),
    "reference passes": (broken_environments.WrongReference, "does not pass: reward 0.0, stop answered"),
    "faults fail": (broken_environments.Indulgent, "doing nothing passes"),
    "no leak": (broken_environments.Talkative, "is shown \"say(word='"),
    "throughput": (broken_environments.Slow, "are fewer than 150"),
}
"""For each check the environment that fails it alone, and what the check says of it."""


def failing(name: str) -> list[Finding]:
    return [finding for finding in conformance(name, tasks=3, floor=150) if finding.outcome == "fail"]


def test_every_check_has_an_environment_that_fails_it() -> None:
    assert list(BROKEN) == list(CHECKS)


def test_a_conforming_environment_passes(registered: Callable[[str, str], str]) -> None:
    findings = list(conformance(registered("sound", f"{HERE}:Sound"), tasks=3, floor=150))
    assert [finding.check for finding in findings] == list(CHECKS) and all(finding.passed for finding in findings)


@pytest.mark.parametrize("check", BROKEN)
def test_a_broken_environment_fails_exactly_its_check(check: str, registered: Callable[[str, str], str]) -> None:
    broken, says = BROKEN[check]
    found = failing(registered(broken.name, f"{HERE}:{broken.__name__}"))
    assert [finding.check for finding in found] == [check]
    assert says in found[0].detail


SENTENCES = {
    "Unschooled": ("documents", "amber: say needs `parameters` in JSON Schema, not {'type': 'object', "),
    "Detached": ("documents", "amber: say refers to #/components/schemas/Word, which its `parameters` lack"),
    "Unwrapped": ("documents", "needs `parameters` in JSON Schema, not {'word': {'type': 'string'}}"),
    "Renamed": ("documents", "needs `parameters` in JSON Schema, not {'name': 'say', "),
    "Twofold": ("documents", "{'name': 'say', 'description': 'Say it aloud.', "),
    "Promising": ("documents", "shout.aloud has a document, but Words no tool_shout_aloud"),
    "Alike": ("documents", "amber: say.it and another tool share tool_say_it: rename one of the two"),
    "Modest": ("documents", "permits ['word', 'loud'], its method does not: got an unexpected keyword argument 'loud'"),
    "Misspelt": ("reference passes", "reward 0.0, stop answered; Error: there is no tool 'sya'."),
    "WrongReference": ("reference passes", "stop answered; calls executed, the state differs from the expected one"),
    "Instanced": ("reference passes", "stop answered; the verifier compared nothing in this turn"),
    "Unbracketed": ("tasks and splits", "task 'amber': 'say' in its reference is not a call: write (name, arguments)."),
    "Keyed": (
        "tasks and splits",
        "'arguments': {'word': 'amber'}} in its reference is not a call: write (name, arguments).",
    ),
    "Unspoken": ("tasks and splits", "task 'amber': its user message is None, which is not text."),
    "Outdated": ("tasks and splits", "task_id 'grass' is unknown; ids of outdated look like amber."),
    "Unruled": ("tasks and splits", "'Unruled' object has no attribute 'rule'"),
    "Untold": ("documents", "amber: no document tells of the stop tool 'finish': add one"),
    "Sided": ("tasks and splits", "task 'daisy': its side is 'test': write train, eval or None."),
    "ByLength": ("tasks and splits", "task 'amber': its group is 5, which is not text."),
}
"""Environments with one mistake of their authors: the check that fails alone, and a part of its sentence."""


@pytest.mark.parametrize("mistake", SENTENCES)
def test_an_author_s_mistake_is_one_sentence_of_one_check(mistake: str, registered: Callable[[str, str], str]) -> None:
    broken = getattr(broken_environments, mistake)
    (found,) = failing(registered(broken.name, f"{HERE}:{mistake}"))
    check, says = SENTENCES[mistake]
    assert found.check == check and says in found.detail and "\n" not in found.detail


RETURNED = {
    "Blunt": "`check` of Plain returns True, not Check",
    "Judged": "`check` of Plain returns True, not Check",
    "Terse": "`call` of Plain returns 'said amber', not Outcome",
    "Wordy": "`user` of Wordy returns 'You want to hear a word.', not UserPart",
    "Mute": "`instructions` of Mute returns None, not str",
    "Unbuilt": "shout has a document, but Words no tool_shout",
    "Classed": "say needs `parameters` in JSON Schema, not <class ",
    "Quitting": "SystemExit is raised: 2",
}


@pytest.mark.parametrize("mistake", RETURNED)
def test_code_that_exits_or_gives_another_type_is_named(mistake: str, registered: Callable[[str, str], str]) -> None:
    found = failing(registered(mistake.lower(), f"{HERE}:{mistake}"))
    assert RETURNED[mistake] in found[0].detail and len(found) > 1


@pytest.mark.parametrize("sound", ["Bracketed", "Unforgiving"])
def test_odd_words_and_names_and_an_end_at_the_first_error_alarm_nobody(
    sound: str, registered: Callable[[str, str], str]
) -> None:
    assert failing(registered(sound.lower(), f"{HERE}:{sound}")) == []


def test_answers_with_other_ends_of_lines_than_newlines_alarm_nobody(registered: Callable[[str, str], str]) -> None:
    assert failing(registered("separated", f"{HERE}:Separated")) == []


def test_a_changing_tool_that_is_not_among_the_writes_is_named(registered: Callable[[str, str], str]) -> None:
    (found,) = failing(registered("unwritten", f"{HERE}:Unwritten"))
    assert found.check == "faults fail" and "without the call of say: add it to `writes`" in found.detail


def test_what_a_user_is_told_is_not_told_to_the_policy(registered: Callable[[str, str], str]) -> None:
    (found,) = failing(registered("confiding", f"{HERE}:Confiding"))
    assert found.check == "no leak" and "'you will never say it first' of the user's instructions" in found.detail
    assert failing(registered("discreet", f"{HERE}:Discreet")) == []


def test_a_value_that_a_document_permits_and_the_world_does_not_expect_is_tried(
    registered: Callable[[str, str], str],
) -> None:
    (found,) = failing(registered("hurried", f"{HERE}:Hurried"))
    assert found.check == "any message" and "IndexError is raised: string index out of range" in found.detail
    (found,) = failing(registered("repeating", f"{HERE}:Repeating"))
    assert found.check == "any message" and '"times": 0.0}' in found.detail and "TypeError is raised" in found.detail


def test_a_user_may_want_what_a_document_or_a_tool_says(registered: Callable[[str, str], str]) -> None:
    assert failing(registered("overlapping", f"{HERE}:Overlapping")) == []


def test_a_user_may_take_its_leave_in_words_of_its_own(registered: Callable[[str, str], str]) -> None:
    assert failing(registered("parting", f"{HERE}:Parting")) == []


def test_an_environment_whose_verifier_is_never_asked_fails(registered: Callable[[str, str], str]) -> None:
    (found,) = failing(registered("unsolved", f"{HERE}:Unsolved"))
    assert found.check == "faults fail" and "every answer gets reward 1" in found.detail


def test_two_tasks_of_one_id_are_named(registered: Callable[[str, str], str]) -> None:
    (found,) = failing(registered("twice", f"{HERE}:Twice"))
    assert "Two tasks of the environment twice have the id 'amber'" in found.detail


def test_an_environment_without_its_tasks_is_one_sentence(registered: Callable[[str, str], str]) -> None:
    (found,) = failing(registered("unreadable", f"{HERE}:Unreadable"))
    assert found.detail == "the tasks cannot be read: KeyError: 'words'"
    registered("unfinished", f"{HERE}:Unfinished")
    said = CliRunner().invoke(app, ["check", "unfinished"])
    assert said.exit_code == 2 and "load" in said.output and said.output.count("\n") == 1


def test_the_benchmark_conforms() -> None:
    findings = list(conformance("bfcl", tasks=8))
    assert not [f"{finding.check}: {finding.detail}" for finding in findings if not finding.passed]


def test_a_new_package_conforms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registered: Callable[[str, str], str]
) -> None:
    written = write_package("shelf", tmp_path / "shelf")
    assert {path.name for path in written} == {
        "__init__.py",
        "environment.py",
        "test_environment.py",
        "pyproject.toml",
        "README.md",
        "recipe.yaml",
    }
    project = tomllib.loads((tmp_path / "shelf" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    location = project["entry-points"]["seal.environments"]["shelf"]
    monkeypatch.syspath_prepend(tmp_path / "shelf")
    registered("shelf", location)
    said = CliRunner().invoke(app, ["check", "shelf", "--tasks", "3"])
    assert said.exit_code == 0, said.output
    assert said.output.count("pass  ") == len(CHECKS)
    page = (HOME / "docs" / "environments.md").read_text(encoding="utf-8")
    told = re.search(r"```text\n(.*?)```", page, re.DOTALL)[1]
    shown = CliRunner().invoke(app, ["show", "shelf", "--mode", "compact"])
    assert (shown.exit_code, shown.output.strip()) == (0, told.strip())


def test_the_recipe_of_a_new_package_trains_on_its_tasks_beside_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registered: Callable[[str, str], str]
) -> None:
    write_package("todo", tmp_path / "todo")
    monkeypatch.syspath_prepend(tmp_path / "todo")
    registered("todo", "todo_env.environment:TodoEnvironment")
    (tmp_path / "todo" / "start").mkdir()
    recipe = read_recipe(tmp_path / "todo" / "recipe.yaml", [])
    preflight.CHECKS["environments"](recipe)
    assert (len(recipe.rows.train), len(recipe.rows.val)) == (96, 48)
    assert recipe.run_dir == tmp_path / "todo" / "experiments" / "todo"
    assert recipe.config.actor_rollout_ref.model.path == str(tmp_path / "todo" / "start")


@pytest.mark.parametrize("name", ["on", "null", "true"])
def test_a_name_that_yaml_reads_as_another_value_stays_a_name(name: str, tmp_path: Path) -> None:
    write_package(name, tmp_path / "new")
    recipe = OmegaConf.load(tmp_path / "new" / "recipe.yaml")
    assert (recipe.seal.name, recipe.env_service.env_type) == (name, name)


def test_a_task_that_is_not_there_is_refused_in_one_sentence(registered: Callable[[str, str], str]) -> None:
    registered("sound", f"{HERE}:Sound")
    said = CliRunner().invoke(app, ["show", "sound", "grass"])
    assert said.exit_code == 2 and "ids of sound look like amber" in said.output


def test_names_and_errors_in_brackets_are_shown_as_they_are(registered: Callable[[str, str], str], monkeypatch) -> None:
    registered("sound", f"{HERE}:Sound")
    registered("lost", "no_such[/module]:Environment")
    environment = get_environment("sound")
    task = replace(environment.load()[0], id="[mms]amber")
    monkeypatch.setitem(vars(environment), "_tasks", {task.id: task})
    assert "[mms]amber (" in CliRunner().invoke(app, ["show", "sound", task.id]).output
    said = CliRunner().invoke(app, ["list"])
    assert said.exit_code == 0 and "[/module]" in said.output


def test_the_command_fails_for_an_environment_that_does_not_conform(registered: Callable[[str, str], str]) -> None:
    registered("faults_fail", f"{HERE}:Indulgent")
    said = CliRunner().invoke(app, ["check", "faults_fail", "--tasks", "1"])
    assert said.exit_code == 1
    assert "FAIL  faults fail" in said.output and "doing nothing passes" in said.output


def test_a_package_is_found_through_its_entry_point(tmp_path: Path) -> None:
    info = tmp_path / "sound_env-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sound-env\nVersion: 1\n", encoding="utf-8")
    entry = f"[seal.environments]\nsound = {HERE}:Sound\nbroken = no_such_module:Environment\n"
    entry += "raising = raising_module:Environment\nexiting = exiting_module:Environment\n"
    (tmp_path / "raising_module.py").write_text("{}['a key']", encoding="utf-8")
    (tmp_path / "exiting_module.py").write_text("raise SystemExit(3)", encoding="utf-8")
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")
    path = os.pathsep.join((str(tmp_path), str(HOME), str(Path(__file__).parent)))
    script = (
        "from env_service.environments.registry import get_environment\n"
        "print(len(get_environment('sound').task_ids('train')))\n"
        "for name in ('broken', 'raising', 'exiting', 'nothing'):\n"
        "    try: get_environment(name)\n"
        "    except ValueError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    tasks, broken, raising, exiting, unknown = done.stdout.splitlines()
    assert tasks == "3"
    assert broken.startswith("The environment broken (no_such_module:Environment) cannot be imported")
    assert "raising_module:Environment) cannot be imported (KeyError: 'a key')" in raising
    assert "exiting_module:Environment) cannot be imported (SystemExit: 3)" in exiting
    assert "env_type 'nothing' is unknown; choose one of bfcl, broken, exiting, raising, sound, " in unknown


@pytest.mark.parametrize(("name", "says"), [("My-Env", "not a name"), ("todo_", "not a name"), ("bfcl", "already")])
def test_a_bad_name_is_refused_and_nothing_is_written(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        write_package(name, tmp_path / "new")
    assert not list(tmp_path.iterdir())
