"""From a run's folder to the records of its certificate; refuses a run whose logs do not hold what a replay needs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from env_service.environments.bfcl.task_file import read_task_file
from seal.diagnosis.categories import BENCHMARK, environment_of
from seal.records.folder import STEP_LOGS, RunFolder
from seal.records.format import FORMAT
from seal.records.trajectory import TrajectoryRecord
from seal.system.files import json_hash
from seal.system.jsonl import BadLine, read_jsonl, step_files
from seal.system.paths import HOME
from shelf.lab.certificate.figures import figures
from shelf.lab.certificate.file import VERSION
from shelf.lab.certificate.launches import Launch, lacking, launch_of_step
from shelf.lab.certificate.version import require_trained_by_own, version
from shelf.lab.paths import movable
from shelf.statistics.suspected import load_suspected

AGAIN = "train it again with this version to certify it"


def records(run: Path) -> Iterator[tuple[str, Any]]:
    """The records of a run's certificate, in the order of the file; ValueError for a run that cannot be certified."""
    folder = RunFolder(run)
    facts = _launches(folder)
    for each in facts:
        require_trained_by_own(run, each)
    launches = [Launch.of(each) for each in facts]
    suspected = load_suspected()
    trained = _steps(folder, launches)
    validated = dict(step_files(folder.validations))
    if not trained and not validated:
        raise ValueError(f"{run} has neither a training step nor a validation: nothing is there to be certified.")
    if lacks := lacking(launches, len(trained), validated):
        raise ValueError(f"{run} is not whole: {lacks}; resume it by the command that began it, or copy all of it.")
    _require_the_benchmark(launches)
    yield (
        "head",
        {
            "certificate": VERSION,
            **version(),
            "run": run.resolve().name,
            "data_hash": facts[-1]["service"].get("data_hash"),
            "bfcl_eval": facts[-1]["service"].get("bfcl_eval"),
            "suspected": json_hash([item.model_dump() for item in suspected]),
        },
    )
    for each in facts:
        yield "launch", movable(each, _checkout(each))
    yield from _made_tasks(launches)
    number = 0
    for step in sorted({*trained, *validated}):
        if step in trained:
            for line in _lines(folder.trajectories / f"{step}.jsonl", step):
                number += 1
                yield "training", line
            yield "step", {"step": step, "launch": launch_of_step(launches, step), **trained[step]}
        if step in validated:
            lines = _lines(validated[step], step)
            number += len(lines)
            for line in lines:
                yield "validation", line
            summaries = figures([TrajectoryRecord.from_line(line) for line in lines], suspected)
            launch = _validating(folder, facts, launches, step)
            yield "figures", {"step": step, "launch": launch, "summaries": summaries}
    yield "end", {"trajectories": number}


def _require_the_benchmark(launches: Sequence[Launch]) -> None:
    """ValueError for a run with tasks of other environments, which a verifier of this version does not play."""
    for launch in launches:
        for source, _task, _side in (*launch.rows("training"), *launch.rows("validation")):
            if environment_of(source) != BENCHMARK:
                raise ValueError(f"{source} is of another environment than bfcl: only runs on bfcl can be certified.")


def _launches(folder: RunFolder) -> list[dict[str, Any]]:
    if not folder.launches.is_file():
        raise ValueError(f"{folder.launches} is missing: the run is of an earlier version of SEAL; {AGAIN}.")
    facts = _objects(folder.launches)
    if not facts:
        raise ValueError(f"{folder.launches} is empty: the run has not started.")
    if facts[0]["step"]:
        raise ValueError(
            f"{folder.path} continues another run's checkpoint of step {facts[0]['step']}, so that C_t does not follow "
            "from its own trajectories: certify a run from its beginning."
        )
    return facts


def _checkout(facts: Mapping[str, Any]) -> Path:
    """The folder of the repository that a launch ran from: its own paths start there."""
    agent = facts["config"]["actor_rollout_ref"]["rollout"]["agent"]
    return Path(agent["agent_loop_config_path"]).parents[2]


def _steps(folder: RunFolder, launches: Sequence[Launch]) -> dict[int, dict[str, Any]]:
    """The lines of each step's logs, by step; ValueError if one is missing."""
    logs = {}
    for name in STEP_LOGS:
        path = folder.log(name)
        # If a step was logged twice, the later line counts, as everywhere.
        logs[name] = {line["step"]: line for line in _objects(path)} if path.is_file() else {}
    steps = sorted(logs["steps"])
    if steps != list(range(1, len(steps) + 1)):
        missing = next(step for step in range(1, steps[-1] + 1) if step not in logs["steps"])
        raise ValueError(f"{folder.steps} has no step {missing}: a certificate needs every step from the first.")
    # A run that was killed leaves one step that was played and not logged; more are missing from an incomplete copy.
    ends = {folder.log(name): max(found, default=0) for name, found in logs.items()}
    for files in (folder.trajectories, folder.validations):
        ends[files] = max((step for step, _ in step_files(files)), default=0)
    later = max(ends, key=ends.__getitem__)
    if ends[later] > len(steps) + 1:
        raise ValueError(
            f"{folder.steps} ends with step {len(steps)}, and {later} with step {ends[later]}: a certificate "
            "needs every step's line. Copy the whole run."
        )
    for step in steps:
        launch_of_step(launches, step)
        for name, found in {n: step in logs[n] for n in STEP_LOGS}.items():
            if not found:
                raise ValueError(f"{folder.log(name)} has no step {step}: a certificate needs every step's line.")
        path = folder.trajectories / f"{step}.jsonl"
        if not path.is_file():
            raise ValueError(f"{path} is missing: the trajectories of step {step} cannot be replayed.")
    return {step: {name: logs[name][step] for name in STEP_LOGS} for step in steps}


def _lines(path: Path, step: int) -> list[dict[str, Any]]:
    lines = _objects(path)
    for line in lines:
        if line.get("format") != FORMAT:
            raise ValueError(
                f"{path} has trajectories of format {line.get('format', 'unknown')}, which lack what a replay needs: "
                f"{AGAIN}."
            )
        if line.get("step") != step:
            raise ValueError(f"{path} holds a trajectory of step {line.get('step')}: move it to the file of its step.")
        if line.get("drawn") not in (None, step):
            raise ValueError(
                f"{path} holds a trajectory that step {line['drawn']} drew: only synchronous runs can be certified."
            )
    return lines


def _validating(folder: RunFolder, facts: Sequence[Mapping[str, Any]], launches: Sequence[Launch], step: int) -> int:
    """The number of the launch that validated at a step: a resumed run may validate before it trains."""
    stages = _objects(folder.stages) if folder.stages.is_file() else []
    times = [each["time"] for each in stages if each["stage"] == "validate" and each["step"] == step]
    if not times:
        return launch_of_step(launches, max(step, 1))
    return max((n for n, each in enumerate(facts) if each["time"] <= times[-1]), default=0)


def _made_tasks(launches: Sequence[Launch]) -> Iterator[tuple[str, Any]]:
    """The synthesised tasks that the launches trained or validated on."""
    wanted = {task for each in launches for _, task in each.sides("training") | each.sides("validation")}
    wanted = {task for task in wanted if task.startswith("synth_")}
    files = sorted({file for each in launches for file in each.settings.data.task_files()})
    gone = [file for file in files if not (HOME / file).is_file()]
    for file in files:
        if not wanted or file in gone:
            continue
        for task in read_task_file(HOME / file):
            if task.id in wanted:
                wanted.remove(task.id)
                yield "task", task.model_dump(mode="json")
    if wanted and gone:
        raise ValueError(f"{min(wanted)} cannot be certified without its task file: put {gone[0]} back.")
    if wanted:
        raise ValueError(f"{min(wanted)} is in none of the run's task files ({', '.join(files) or 'none'}).")


def _objects(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in read_jsonl(path):
        if isinstance(line, BadLine):
            raise ValueError(str(line))
        found.append(dict(line.value))
    return found
