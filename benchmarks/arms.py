"""What a model makes of each kind of cue: `python -m benchmarks.arms MODEL RECIPE FOLDER [KEY=VALUE ...]`.

`seal probe` asks every cue alone. Here all cues of a kind are asked at once, on all tasks that failed: the schema cues,
the guidelines of the task's own failures and, as a control of the diagnosis, those of other failures, feedback (where
its labels were seen), and all cues that the recipe has. FOLDER gets rollouts.csv.gz and lifts.json, then, after
the gradients, probe.json.
"""

import csv
import gzip
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from seal.cli.train import console
from seal.data.rows import TaskRow
from seal.diagnosis.sources import exchanged_names, failure_labels
from seal.interface.cues import Omega
from seal.interface.evolve import cues_in_use
from seal.launch.recipe import read_recipe
from seal.settings import SealSettings
from seal.system.files import write_json
from shelf.lab.probe.measure import Question, Rollouts, findings, gain, lines, played, seen_labels
from shelf.suites.bar import Bar

OWN, OTHER = "own guidelines", "other guidelines"


def arms(settings: SealSettings, tasks: Sequence[TaskRow], plain: Rollouts) -> Iterator[Question]:
    """A question per kind of cue and one for all cues."""
    taxonomy = settings.diagnosis.taxonomy
    cues, names = cues_in_use(settings.interface.evolve, taxonomy), exchanged_names(taxonomy, settings.seed)
    seen = {n: labels & failure_labels(taxonomy) for n, labels in seen_labels(plain).items()}
    failed = {n: labels for n, labels in seen.items() if labels}
    others = {n: {names[label] for label in labels} - labels for n, labels in failed.items()}

    def asked(name: str, kind: str, labels: dict[int, set[str]] | None = None) -> Question:
        some = {
            n: [cue.name for cue in cues if kind in ("", cue.kind) and (labels is None or cue.label in labels[n])]
            for n in failed
        }
        return Question(
            name, "a named failure", len(failed) / len(plain), {n: Omega.of(own) for n, own in some.items() if own}
        )

    yield asked("schema", "schema")
    yield asked(OWN, "guideline", failed)
    yield asked(OTHER, "guideline", others)
    told = {cue.label for cue in cues if cue.kind == "feedback"}
    feedback = asked("feedback", "feedback")
    yield feedback._replace(shown={n: omega for n, omega in feedback.shown.items() if failed[n] & told})
    yield asked("all", "")


def main(model: Path, recipe: Path, folder: Path, *changes: str) -> None:
    """Play, write the rollouts, then measure."""
    folder.mkdir(parents=True, exist_ok=True)
    with Bar(console()) as bar:
        read = read_recipe(recipe, [*changes, f"actor_rollout_ref.model.path={model.resolve()}"])
        plain, control, answers = played(read, folder, bar, arms)
        with gzip.open(folder / "rollouts.csv.gz", "wt", encoding="utf-8", newline="") as file:
            write = csv.writer(file)
            write.writerow(["arm", "task", "sample", "passed", "calls", "errors", "cues", "labels"])
            for arm, some in (("", plain), ("plain", control), *((asked.cue, each) for asked, each in answers)):
                for job, record in (each[:2] for played in some.values() for each in played if each.record.usable):
                    shown = job.omega.for_category(record.category) if job.omega else ()
                    row = arm, record.task_id, job.sample, int(record.passed), record.calls, record.errors
                    write.writerow([*row, " ".join(shown), " ".join(record.labels)])
        by_arm = {asked.cue: (asked, some) for asked, some in answers}
        own, other = by_arm[OWN], by_arm[OTHER]
        both = {n: omega for n, omega in own[0].shown.items() if n in other[1]}
        compared = [(asked, control, some) for asked, some in answers]
        compared.append((own[0]._replace(cue="own less other", shown=both), other[1], own[1]))
        unknown = {"transfer": None, "cued": None}  # until there are gradients
        lifts = [gain(asked, read.rows.train, a, b, lambda *_: 0.0) | unknown for asked, a, b in compared]
        write_json({"changes": changes, "lifts": lifts}, folder / "lifts.json")
        console().print("\n".join(lines(lifts)))
        found, said = findings(read, bar, plain, control, answers)
        write_json({"changes": changes, **found}, folder / "probe.json")
    console().print("\n".join(said))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), *sys.argv[4:])
