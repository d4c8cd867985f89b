"""The file of an experiment: what it means, and one sentence for each mistake."""

import json
import re
import shlex
import shutil
from dataclasses import replace

import pytest
from omegaconf import OmegaConf

from env_service.environments.bfcl.splits import task_ids
from env_service.environments.registry import register
from seal.launch.recipe import read_recipe
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from shelf.lab.cli.experiment import app
from shelf.lab.experiment.arms import ComposedArm, composed_arms, record_configuration, recorded_arm, require_unchanged
from shelf.lab.experiment.collect import write_results
from shelf.lab.experiment.design import OutcomeMeasure, parse_design
from shelf.lab.experiment.matrix import Experiment
from shelf.lab.experiment.plan import plan_experiment, plan_parts
from shelf.lab.experiment.records import TaskScore, ValidationScores
from shelf.lab.experiment.report import analyse
from shelf.lab.tests.experiment import simulated
from shelf.operate.fit import GPUS
from shelf.operate.plan import RunPlan, model_of
from tests.support.commands import run

FILE = """\
name: x
question: Which arm learns more?
stopping: every run, once
recipe: exp/quickstart_long.yaml
overrides: [trainer.total_training_steps=2]
seeds: 0-2
control: vanilla
arms:
  vanilla: {overrides: [ablation=vanilla]}
  seal:
primary: {set: base@1}
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paper_table3", "one_gpu", "pretrained_1gpu"])
def test_a_waiting_experiment_costs_what_seal_plan_computes(name):
    experiment = Experiment.read(HOME / "exp" / "experiments" / f"{name}.yaml")
    recipe = read_recipe(HOME / experiment.design.recipe, experiment.design.overrides)
    lines = dict(RunPlan.of(recipe).gpu_lines(GPUS["H100"], model_of(recipe), None))
    step, validation = (
        re.search(r"(\d+)(?:: | s,)", lines[what])[1] for what in ("seconds of a step", "validations, saves")
    )
    cost = experiment.design.cost
    assert (cost.seconds_per_step, cost.validation_s) == (int(step), int(validation))


def test_a_matrix_is_arms_times_seeds():
    design = parse_design(FILE.replace("seal:", "seal: {seeds: [0, 4]}").replace("0-2", "[0, 1, 2, 4]"), "f")
    cells = Experiment(design, HOME / "f", FILE).cells
    assert [str(cell) for cell in cells] == ["vanilla-0", "seal-0", "vanilla-1", "vanilla-2", "vanilla-4", "seal-4"]
    assert [(each.arm, each.against) for each in design.contrasts] == [("seal", "vanilla")]


def test_named_comparisons_replace_those_with_the_control():
    design = parse_design(FILE + "comparisons: [{arm: vanilla, against: seal}]\n", "f")
    assert [(each.arm, each.against) for each in design.contrasts] == [("vanilla", "seal")]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("control: vanilla", "control: vanila", "f: vanila is not an arm (did you mean vanilla?)."),
        ("{set: base@1}", "{set: bse@1}", "f: primary.set: 'bse@1' is not a data source (did you mean base?)."),
        ("seal:", "seal: {overides: [a=1]}", "f: arms.seal.overides is not a setting;"),
        ("primary:", "primry:", "f: primry is not a setting;"),
        ("  seal:", "  vanilla:", "f is not valid YAML: found duplicate key vanilla (line 10)."),
        ("seeds: 0-2", "seeds: 3-1", "f: seeds: '3-1' is not a range of seeds; write 0-4 or [0, 1, 2]."),
        ("seeds: 0-2", "seeds: [1, 1]", "f: the arm vanilla has a seed twice."),
        ("question: Which arm learns more?\n", "", "f: question has no value"),
        ("ablation=vanilla", "seal.seed=3", "f: seal.seed is set by the experiment for each run; remove the override"),
        ("ablation=vanilla", "ablation", "f: 'ablation' is not an override; write key=value."),
        ("seal:", "seal: {seeds: 7-9}", "f: seal and vanilla have no seed in common, and arms are paired."),
        ("{set: base@1}", "{set: base@1, metric: pas}", "f: primary.metric is 'pas'; it must be 'pass' or 'turns'."),
        ("name: x", "name: x y", "f: name 'x y' must consist of letters, digits, '.', '_' and '-'."),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(old, new, sentence):
    with pytest.raises(LaunchError) as error:
        parse_design(FILE.replace(old, new, 1), "f")
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("ablation=vanilla", "ablation=vanila", "The arm vanilla of .* choose one of .*vanilla"),
        ("ablation=vanilla", "trainer.test_frq=3", "The arm vanilla of .*test_freq"),
        (
            "ablation=vanilla",
            "actor_rollout_ref.actor.optim.lr=0.0",
            "The arm vanilla of .*optim.lr is 0.0; it must be",
        ),
        (
            "base@1",
            "miss_func@1",
            "the outcome miss_func@1, .* not measured by the arm vanilla, which validates base@1",
        ),
        ("ablation=vanilla", "trainer.test_freq=-1", "the arm vanilla validates nothing that it trained"),
        ("base@1", "base@1, step: 1", "validates at steps 0, 2: name one of them"),
        ("base@1", "base@1, tasks: data/none.json", "base@1, tasks passed of none, .*data/none.json"),
        (
            "base@1",
            "base@1, tasks: data/test_bed/teacher_cued.json",
            "vanilla .*none of data/test_bed/teacher_cued.json",
        ),
        ("base@1", "base@1, tasks: LIST", r"1 of the 2 tasks of .*tasks.json \(multi_turn_base_1O\)"),
    ],
)
def test_an_arm_that_cannot_run_is_refused_before_anything_starts(tmp_path, capsys, old, new, sentence):
    path, tasks = tmp_path / "x.yaml", tmp_path / "tasks.json"
    tasks.write_text(json.dumps([task_ids()["eval"][0], "multi_turn_base_1O"]))
    new = new.replace("LIST", str(tasks))
    path.write_text(FILE.replace("name: x", f"name: x\nfolder: {tmp_path}").replace(old, new, 1))
    assert run(app, ["run", path]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert re.search(sentence, said), said
    assert {each.name for each in tmp_path.iterdir()} == {"x.yaml", "tasks.json"}


def test_an_arm_with_runs_must_stay_as_it_was_but_for_settings_that_a_later_version_added(make_bench):
    bench = make_bench()
    record_configuration(bench.experiment, bench.arms["seal"])
    path = bench.experiment.configuration("seal")
    recorded = OmegaConf.load(path)
    del recorded.seal.diagnosis.source
    OmegaConf.save(recorded, path)
    require_unchanged(bench.experiment, bench.arms)
    recorded.seal.diagnosis.window = 9
    OmegaConf.save(recorded, path)
    with pytest.raises(
        LaunchError, match=r"The arm seal of .* \(seal.diagnosis.window was 9 and is 5\): undo the change"
    ):
        require_unchanged(bench.experiment, bench.arms)
    simulated.write_results(bench.experiment, {"vanilla": 0, "seal": 0})
    write_results(bench.experiment)
    shutil.rmtree(bench.experiment.folder / "runs")  # published, and no run is missing
    require_unchanged(bench.experiment, bench.arms)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((HOME / "exp" / "experiments").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_experiments_of_the_repository_can_be_planned(path):
    experiment = Experiment.read(path)
    arms = composed_arms(experiment)
    assert len({arm.hash for arm in arms.values()}) == len(arms), "two arms are the same"
    plan = plan_experiment(experiment, arms, jobs=2)
    assert sum(arm.runs for arm in plan.arms) == len(experiment.cells)
    assert plan.hours_left == pytest.approx(sum((arm.runs - arm.done) * arm.minutes for arm in plan.arms) / 60)
    require_unchanged(experiment, arms)


def test_a_plan_prints_the_launches_that_are_missing_and_registers_them(tmp_path, capsys):
    path = tmp_path / "x.yaml"
    path.write_text(FILE.replace("name: x", f"name: x\nfolder: {tmp_path}"))
    assert run(app, ["plan", path, "--commands"]) == 0
    launches = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    experiment = Experiment.read(path)
    assert len(launches) == len(experiment.cells) == 6
    recipe, *overrides = launches[0]
    assert recipe == str(HOME / "exp" / "quickstart_long.yaml")
    assert {"ablation=vanilla", "seal.seed=0", "trainer.experiment_name=x-vanilla-0"} <= set(overrides)
    assert recorded_arm(experiment, "seal").steps == 2, "so that finished runs can be taken in"


@pytest.mark.parametrize("more", [{}, {"also_primary": "[" + ", ".join(["{set: base@1, step: 16}"] * 19) + "]"}])
def test_a_plan_tells_what_more_seeds_would_find(make_bench, more):
    bench = make_bench(seeds=(0, 1, 2, 3, 4), **more)

    def said() -> list[str]:
        parts = plan_parts(bench.experiment, plan_experiment(bench.experiment, bench.arms))
        return [part for part in parts if isinstance(part, str) and part.startswith("Points that")]

    assert not said()
    tasks = {f"multi_turn_base_{scenario}": TaskScore(0, 8, 0, 8) for scenario in simulated.EVAL_SCENARIOS}
    for cell in bench.experiment.cells:
        alike = simulated.result(bench.experiment, cell, (ValidationScores(32, "base@1", tasks),))
        alike.write(bench.experiment.result(cell))
    assert not said()
    simulated.write_results(bench.experiment, {"vanilla": 0.1, "seal": 0.2})
    (sentence,) = said()
    points = [float(number) for number in re.findall(r"([0-9.]+) with", sentence)]
    effect = analyse(bench.experiment).primary[0]
    assert points == sorted(points, reverse=True) and points[1] == pytest.approx(100 * effect.detectable, rel=0.15)


def test_an_outcome_is_of_the_run_s_own_environment():
    register("errands", "tests.support.errands:Errands")
    given = ["env_service.env_type=errands", "seal.data.val=[{split: eval}]", "trainer.experiment_name=x"]
    given += ["seal.data.train={task_file: null, categories: [], prefix_turns: [], mixture: []}"]
    arm = ComposedArm("own", read_recipe(HOME / "exp" / "quickstart.yaml", given).config, 1)
    assert {"errands/bag"} <= {*arm.sources} and not {"base", "errands/base"} & {*arm.sources}
    assert OutcomeMeasure(set="errands/bag").set == "errands/bag"


def test_a_plan_takes_the_times_of_finished_runs(make_bench):
    bench = make_bench(cost="{seconds_per_step: 60, start_s: 0, validation_s: 30, checkpoint_gb: 2, kept_mb: 1024}")
    stated = plan_experiment(bench.experiment, bench.arms, jobs=2)
    assert [arm.minutes for arm in stated.arms] == [pytest.approx((4 * 60 + 3 * 30) / 60)] * 2
    # Two runs at a time, with two checkpoints that stay, the best one and the one being written; 1 GiB stays of each.
    assert (stated.disk_during, stated.disk_after) == (pytest.approx(2 * 4 * 2 + 4), pytest.approx(4))
    cell = bench.experiment.cells[0]
    simulated.result(bench.experiment, cell, minutes=2.0).write(bench.experiment.result(cell))
    measured = plan_experiment(bench.experiment, bench.arms)
    assert [arm.minutes for arm in measured.arms] == [2.0, 2.0] and measured.basis == "measured in 1 finished run"
    assert [arm.done for arm in measured.arms] == [1, 0] and measured.hours_left == pytest.approx(3 * 2 / 60)
    name, arm = list(bench.arms.items())[1]
    short = replace(arm, steps=1)
    planned = plan_experiment(bench.experiment, {**bench.arms, name: short}).arms[1]
    assert planned.minutes == pytest.approx(2.0 * (60 + 30 * len(short.validation_steps)) / (4 * 60 + 3 * 30))
    job = bench.experiment.cells[2]
    simulated.result(bench.experiment, job, minutes=0.0).write(bench.experiment.result(job))
    assert plan_experiment(bench.experiment, bench.arms).basis == "measured in 1 finished run"
