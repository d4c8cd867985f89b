"""Another environment in training: its tasks are selected, played, logged, counted and cued under its own name."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from env_service.environments.kit.formats import get_format
from seal.data.rows import TaskRow, write_rows
from seal.data.selection import selected_rows
from seal.launch.checks import preflight
from seal.launch.recipe import Recipe
from seal.method.interface.cues import Omega
from seal.method.interface.evolve import cues_in_use, evolve
from seal.method.profile import Profile, Rollout
from seal.records.source import categories_to_average, parse_data_source
from seal.records.step import StepRecord
from seal.records.trajectory import TrajectoryRecord
from seal.records.validation import environment_averages
from seal.settings.data import Selection
from seal.settings.interface import EvolveSettings
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from shelf.statistics.log import read_line
from shelf.statistics.runs import not_held_out
from shelf.task_rows import read_rows
from tests.support.recipes import composed
from tests.support.rollout_play import ScriptedEngine, roll_out, running_service

LOCATION = "shelf.authoring.tests.broken_environments:Sound"
PATH = os.pathsep.join((str(HOME), str(Path(__file__).parent)))


@pytest.fixture(autouse=True)
def sound(registered: Callable[[str, str], str]) -> str:
    return registered("sound", LOCATION)


def record(category: str, score: float, labels: tuple[str, ...] = ("pass",), **more: object) -> TrajectoryRecord:
    known = {"task_id": "amber", "data_source": category, "category": category, "split": "train", "sample": 0}
    return TrajectoryRecord(**known | {"score": score, "labels": labels} | more)


# --- data ------------------------------------------------------------------------------


def test_an_environment_is_selected_by_its_name(tmp_path: Path) -> None:
    rows = selected_rows(Selection.read({"environment": "sound"}))
    assert [row.task_id for row in rows] == ["amber", "birch", "cedar"]
    assert {row.data_source for row in rows} == {"sound/say"} and {row.environment for row in rows} == {"sound"}
    held = selected_rows(Selection.read({"split": "eval"}), "sound")
    assert not {row.scenario for row in rows} & {row.scenario for row in held}
    write_rows(rows, tmp_path / "rows.parquet")
    assert read_rows(tmp_path / "rows.parquet") == rows


def test_a_validated_task_of_another_environment_that_is_trained_on_is_told(tmp_path: Path) -> None:
    assert not_held_out(tmp_path, [record("sound/say", 1.0)]) is None
    (tmp_path / "data").mkdir()
    rows = selected_rows(Selection.read({"environment": "sound"}))
    write_rows((*rows, TaskRow("multi_turn_base_0", "base", 0, "train")), tmp_path / "data" / "train.parquet")
    bfcl = [replace(record("miss_func", 0.0), task_id=f"multi_turn_miss_func_{number}") for number in (0, 1)]
    elsewhere = replace(record("sound/say", 1.0), task_id="dogwood")
    assert not_held_out(tmp_path, [bfcl[1], elsewhere]) is None
    told = not_held_out(tmp_path, [*bfcl, elsewhere, record("sound/say", 1.0)])
    assert told is not None and told.startswith("NOT HELD OUT: of 4 validated tasks 2 are trained on")
    validated = [replace(row, task_id="birch-2") for row in rows if row.task_id == "birch"]
    write_rows(validated, tmp_path / "data" / "val.parquet")
    told = not_held_out(tmp_path, [elsewhere, replace(record("sound/say", 1.0), task_id="birch-2")])
    assert told is not None and told.startswith("NOT HELD OUT: of 2 validated tasks 1 are trained on")


def test_a_mixture_takes_environments_in_the_proportion_of_their_weights() -> None:
    mixture = [{"tasks": "bfcl", "weight": 9}, {"tasks": "sound", "weight": 1}]
    selection = Selection.read({"mixture": mixture, "categories": "base", "prefix_turns": [1]})
    rows = selected_rows(selection)
    names = [row.environment for row in rows]
    assert names.count("bfcl") == 27 and names.count("sound") == 3
    assert {row.data_source for row in rows} == {"base@1", "sound/say"}


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        ({"environment": "nothing"}, "env_type 'nothing' is unknown; choose one of"),
        ({"environment": "sound", "categories": "base"}, "categories filters tasks of bfcl, not of sound"),
        ({"environment": "sound", "subset": "moon"}, "split 'moon' is unknown; choose one of say, all"),
    ],
)
def test_a_wrong_selection_is_named(selection: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        selected_rows(Selection.read(selection))


UNFILTERED = ("seal.data.train={task_file: null, categories: [], mixture: []}", "seal.data.withdrawal=null")
"""The quickstart's filters are for the benchmark's tasks."""


# --- preflight -------------------------------------------------------------------------


def prepared(*overrides: str):
    return Recipe.of(composed(HOME / "exp" / "quickstart.yaml", "env_service.env_type=sound", *UNFILTERED, *overrides))


def test_a_recipe_may_train_on_another_environment(tmp_path: Path) -> None:
    files = [f"data.{name}_files={tmp_path}/{name}.parquet" for name in ("train", "val")]
    recipe = prepared("seal.data.val=[{split: eval}]", "data.train_batch_size=3", *files)
    preflight.CHECKS["environments"](recipe)
    assert recipe.environments == ("sound",)
    recipe.rows.write(tmp_path / "train.parquet", tmp_path / "val.parquet")
    assert (len(recipe.rows.train), len(recipe.rows.val)) == (3, 3)
    assert all(isinstance(row, TaskRow) and row.environment == "sound" for row in read_rows(tmp_path / "val.parquet"))


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("env_service.env_type=nothing", "env_service.env_type=nothing: env_type 'nothing' is unknown"),
        ("env_service.prompt_mode=bfcl_qwen_fc", "is not a format of sound, which has hermes, compact: add"),
        ("env_service.prompt_mode=openai_fc", "is only for `seal evaluate`, since an API reads the calls: train with"),
        ("seal.data.val=[{environment: nothing}]", "seal.data names nothing: env_type 'nothing' is unknown"),
    ],
)
def test_an_environment_or_format_that_is_not_there_is_refused(override: str, says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        preflight.CHECKS["environments"](prepared(override))


# --- records, figures and cues ---------------------------------------------------------


def test_records_know_their_environment() -> None:
    assert parse_data_source("sound/say@2") == ("sound/say", 2)
    assert categories_to_average(["sound/say", "tau2_telecom/mms_issue"]) == ("sound/say", "tau2_telecom/mms_issue")
    assert categories_to_average(["base", "sound/say"]) == ("base",)
    line = record("sound/say", 1.0).line() | {"step": 3}
    again, _ = read_line(line)
    assert (again.environment, again.category, again.step) == ("sound", "sound/say", 3)


def test_a_step_has_figures_by_environment() -> None:
    records = [record("base", 1.0), record("base", 0.0, ("state_mismatch",)), record("sound/say", 1.0)]
    step = StepRecord.of(1, records)
    assert step.environments["bfcl"]["reward_mean"] == 0.5 and set(step.environments) == {"bfcl", "sound"}
    assert step.metrics()["seal/sound/pass_share"] == 1.0
    assert StepRecord.from_line(step.line()) == step
    assert StepRecord.of(1, records[:2]).environments == {}
    assert environment_averages(records) == {"bfcl": 0.5, "sound": 1.0}


def test_each_environment_has_cues_of_its_own() -> None:
    weak = [Rollout("sound/say", ("state_mismatch",), 0.0)] * 20
    strong = [Rollout("base", ("pass",), 1.0)] * 20
    profile = Profile().after(1, [*weak, *strong])
    omega, events = evolve(Omega(), profile, EvolveSettings(adaptive=("schema", "feedback", "guideline")), step=1)
    assert {event.category for event in events} == {"sound"}
    assert omega.for_category("sound/say") and not omega.for_category("base")


# --- rollouts --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with running_service(BFCL_ENVIRONMENTS=f"sound={LOCATION}", PYTHONPATH=PATH) as running:
        yield running.url


def test_both_environments_are_rolled_out_on_one_service(service: str) -> None:
    written = get_format("compact").render_call
    engine = ScriptedEngine([written("say", {"word": "amber"}), written("recall", {}), "Done."])
    [(output, found)] = roll_out([service], engine, task_id="amber", category="sound/say")
    assert (found.score, found.labels, found.stop) == (1.0, ("pass",), "completed")
    assert found.environment == "sound" and found.prompt_mode == "compact" and found.data_hash == "words-1"
    assert sum(output.response_mask) == found.tokens > 0
    [(_, wrong)] = roll_out([service], ScriptedEngine(["Done."]), task_id="amber", category="sound/say")
    assert (wrong.score, wrong.labels) == (0.0, ("missing_tool_call",))
    [(_, benchmark)] = roll_out([service], ScriptedEngine(["Done."]))
    assert benchmark.environment == "bfcl" and benchmark.infra is None


def test_a_task_that_an_environment_does_not_have_stops_the_run(service: str) -> None:
    [(_, found)] = roll_out([service], ScriptedEngine(["Done."]), task_id="grass", category="sound/say")
    assert found.infra == "environment_refused" and "ids of sound look like amber" in found.infra_message


def test_what_passes_with_cues_is_taught_in_the_environment_of_its_task(service: str) -> None:
    written = get_format("compact").render_call
    engine = ScriptedEngine([written("say", {"word": "amber"}), written("recall", {}), "Done."])
    omega = Omega.of([cue.name for cue in cues_in_use(EvolveSettings())]).to_json()
    share = ("seal.interface.teacher=share", "seal.interface.share=0.5")
    known = {"task_id": "amber", "category": "sound/say", "omega": omega, "trajectories": 2}
    (plain, _), (taught, found) = roll_out([service], engine, *share, **known)
    assert found.taught and found.cues and found.environment == "sound"
    assert (taught.prompt_ids, taught.response_ids) == (plain.prompt_ids, plain.response_ids)
