"""The lift of each kind of cue on failed tasks: `python -m benchmarks.arms MODEL RECIPE FOLDER [KEY=VALUE ...]`.

`seal probe` asks every cue alone. Here a question shows all cues of a kind, alone and with the cues that training
always shows, and the guidelines of a task's own failures beside those of other failures, the control of the diagnosis.
`arms=A,B` among the changes asks these alone. FOLDER gets rollouts.csv.gz and lifts.json.
"""

import csv
import gzip
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from seal.cli.train import console
from seal.data.rows import TaskRow
from seal.diagnosis.sources import exchanged_names, failure_labels
from seal.interface.cues import Cue, Omega
from seal.interface.evolve import cues_in_use
from seal.launch.recipe import read_recipe
from seal.settings import SealSettings
from seal.system.files import write_json
from shelf.lab.probe.measure import Question, Rollouts, gain, lines, played, seen_labels
from shelf.suites.bar import Bar

ALWAYS, OWN, OTHER = "always", "always and own", "always and other"
COMPARED = ((OWN, ALWAYS), (OTHER, ALWAYS), (OWN, OTHER))
"""Arms that are compared with another one than `plain`."""


def arms(asked: Sequence[str], settings: SealSettings, tasks: Sequence[TaskRow], plain: Rollouts) -> Iterator[Question]:
    """A question per arm, on the tasks that failed with a label and for which the arm has a cue."""
    taxonomy = settings.diagnosis.taxonomy
    cues, names = cues_in_use(settings.interface.evolve, taxonomy), exchanged_names(taxonomy, settings.seed)
    seen = {n: labels & failure_labels(taxonomy) for n, labels in seen_labels(plain).items()}
    failed = {n: labels for n, labels in seen.items() if labels}
    others = {n: {names[label] for label in labels} - labels for n, labels in failed.items()}

    def always(cue: Cue, _: int) -> bool:
        return cue.kind != "guideline"

    def guideline(labels: dict[int, set[str]], cue: Cue, n: int) -> bool:
        return cue.kind == "guideline" and cue.label in labels[n]

    def both(labels: dict[int, set[str]], cue: Cue, n: int) -> bool:
        return always(cue, n) or guideline(labels, cue, n)

    shown: dict[str, Callable[[Cue, int], bool]] = {
        "schema": lambda cue, _: cue.kind == "schema",
        "feedback": lambda cue, _: cue.kind == "feedback",
        "own": partial(guideline, failed),
        ALWAYS: always,
        OWN: partial(both, failed),
        OTHER: partial(both, others),
    }
    for name in asked or shown:
        some = {n: [cue.name for cue in cues if shown[name](cue, n)] for n in failed if others[n]}
        omegas = {n: Omega.of(own) for n, own in some.items() if own}
        yield Question(name, "a named failure", len(failed) / len(plain), omegas)


def main(model: Path, recipe: Path, folder: Path, *changes: str) -> None:
    """Play, write the rollouts, then the lifts."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = [name for each in changes if each.startswith("arms=") for name in each.removeprefix("arms=").split(",")]
    overrides = [each for each in changes if not each.startswith("arms=")]
    with Bar(console()) as bar:
        read = read_recipe(recipe, [*overrides, f"actor_rollout_ref.model.path={model.resolve()}"])
        plain, control, answers = played(read, folder, bar, partial(arms, asked))
    with gzip.open(folder / "rollouts.csv.gz", "wt", encoding="utf-8", newline="") as file:
        write = csv.writer(file)
        write.writerow(["arm", "task", "sample", "passed", "calls", "errors", "cues", "labels", "cut"])
        for arm, some in (("", plain), ("plain", control), *((question.cue, each) for question, each in answers)):
            for job, record in (each[:2] for rollouts in some.values() for each in rollouts if each.record.usable):
                shown = job.omega.for_category(record.category) if job.omega else ()
                row = arm, record.task_id, job.sample, int(record.passed), record.calls, record.errors
                write.writerow([*row, " ".join(shown), " ".join(record.labels), len(record.truncated)])
    by_arm = {question.cue: (question, some) for question, some in answers}
    compared = [(question, control, some) for question, some in answers]
    for one, two in COMPARED:
        if one in by_arm and two in by_arm:
            compared.append((by_arm[one][0]._replace(cue=f"{one} - {two}"), by_arm[two][1], by_arm[one][1]))
    unknown = {"transfer": None, "cued": None}  # gradients are `seal probe`'s
    lifts = [gain(question, read.rows.train, a, b, lambda *_: 0.0) | unknown for question, a, b in compared]
    write_json({"changes": changes, "lifts": lifts}, folder / "lifts.json")
    console().print("\n".join(lines(lifts)))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), *sys.argv[4:])
