"""A certificate checked: every episode is played again, and the run is computed again from what the replays give."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from env_service.environments.bfcl.catalog import data_hash, package_version
from seal.interface.cues import Omega
from seal.system.files import json_hash
from shelf.lab.certificate import file
from shelf.lab.certificate.fields import ASPECTS
from shelf.lab.certificate.figures import figures
from shelf.lab.certificate.file import Record
from shelf.lab.certificate.findings import Findings, place_of
from shelf.lab.certificate.launches import Launch, lacking, launch_of_step
from shelf.lab.certificate.lessons import lessons
from shelf.lab.certificate.places import Difference, Place, difference, shown
from shelf.lab.certificate.replay import TAUGHT, Line, Replayed, Stage
from shelf.lab.certificate.rounds import Rounds
from shelf.lab.certificate.version import require_own
from shelf.lab.service import service
from shelf.statistics.suspected import load_suspected
from shelf.view.again import played_again


class Block(NamedTuple):
    """The trajectories of a step or of a validation, and the record that closes them (None if the file ends before)."""

    lines: Sequence[Record]
    closing: Record | None

    @property
    def first(self) -> Record:
        return self.lines[0] if self.lines else self.closing


def verify(
    path: Path | str, digest: str | None = None, processes: int | None = None, url: str | None = None
) -> Findings:
    """Check a certificate; digest: what was published, if anything was.

    processes: workers of the service that plays the episodes again, one per core by default.
    url: a service that runs already, with this machine's data.

    ValueError for a file that is not a certificate, or that this machine cannot check:
    another version, or other benchmark data.
    """
    try:
        findings = _Verification(path, processes, url).run()
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        # Whoever renews the hashes may write any JSON where a value is expected: the file is refused, never accepted.
        raise ValueError(f"{path} is not a certificate: a value is not what stands there ({error!r:.80}).") from error
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path} cannot be verified: {error}") from error
    if digest is not None and digest.removeprefix("sha256:").lower() != findings.digest:
        findings.add(-1, Place(field="digest"), f"it is {findings.digest}, and the published one is {digest}")
    return findings


class _Verification:
    """The state of one verification."""

    def __init__(self, path: Path | str, processes: int | None, url: str | None) -> None:
        self._path = path
        self._processes, self._url = processes, url
        self._findings = Findings()
        self._rounds = Rounds(self._findings)
        self._launches: list[Launch] = []
        self._validations: list[int] = []
        self._suspected = load_suspected()
        self._end: Record | None = None

    def run(self) -> Findings:
        findings = self._findings
        records = self._checked(file.read(self._path))
        tasks, first = self._opening(records)
        blocks = self._blocks(chain([first] if first else [], records))
        with service(tasks, self._processes, self._url) as url:
            for block in blocks:
                if not self._play(block, url):
                    findings.add(block.first.number, place_of(block.first), "from here on nothing can be recomputed")
                    list(blocks)  # their hashes are still compared
                    break
            else:
                self._compare_end()
        return findings

    # --- reading --------------------------------------------------------------------

    def _checked(self, records: Iterator[Record]) -> Iterator[Record]:
        """The records; those whose hash does not fit are noted."""
        for record in records:
            if not self._findings.count("hashes", record.intact):
                problem = "its hash does not fit: it was changed, moved or repeated, or what stood before it was"
                self._findings.add(record.number, place_of(record), problem)
            self._findings.digest = record.sha256
            yield record

    def _opening(self, records: Iterator[Record]) -> tuple[list[dict[str, Any]], Record | None]:
        """Read what comes before the trajectories: the synthesised tasks, and the first record after it."""
        head = next(records, None)
        if head is None or head.kind != "head":
            raise ValueError(f"{self._path} is not a certificate: it does not begin with a head (seal certify RUN).")
        self._head(head)
        tasks, first = [], None
        for record in records:
            if record.kind == "launch":
                self._launch(record)
            elif record.kind == "task":
                tasks.append(record.value)
            else:
                first = record
                break
        if not self._launches:
            raise ValueError(f"{self._path} is not a certificate: it names no launch (seal certify RUN).")
        return tasks, first

    def _head(self, record: Record) -> None:
        head = record.value if isinstance(record.value, dict) else {}
        if head.get("certificate") in (1, file.VERSION):
            require_own(self._path, head)
        else:
            raise ValueError(
                f"{self._path} has version {shown(head.get('certificate'))}, and this SEAL reads {file.VERSION}."
            )
        if head.get("data_hash") != data_hash():
            theirs, ours = f"{head.get('data_hash')!s:.16}", f"{data_hash():.16}"
            raise ValueError(
                f"{self._path} is about benchmark data {theirs} (bfcl-eval {head.get('bfcl_eval')}), and this machine "
                f"has {ours} (bfcl-eval {package_version()}): install that version."
            )
        self._findings.run, self._findings.made_by = str(head.get("run")), str(head.get("seal"))
        found = {
            "bfcl_eval": package_version(),
            "suspected": json_hash([item.model_dump() for item in self._suspected]),
        }
        written = {name: head.get(name) for name in found}
        self._findings.compare("environment", record.number, Place(record=record.number), difference(written, found))

    def _launch(self, record: Record) -> None:
        launch, number = Launch.of(record.value), len(self._launches)
        self._launches.append(launch)
        place = Place(record=record.number)
        if not number and launch.step:
            one = Difference(("launch", "step"), launch.step, 0)
            self._findings.compare("identities", record.number, place, one)
        for kind in ("training", "validation"):
            selected = launch.selected(kind)
            if selected is None:
                self._findings.taken[f"selections of {kind} tasks by files that are not here as the run read them"] += 1
                continue
            rows = [list(row) for row in launch.rows(kind)]
            one = difference({"rows": {kind: rows}}, {"rows": {kind: [list(row) for row in selected]}})
            self._findings.compare("selections of tasks", record.number, place, one)

    def _blocks(self, records: Iterator[Record]) -> Iterator[Block]:
        lines: list[Record] = []
        for record in records:
            if self._end is not None:
                self._findings.add(record.number, place_of(record), "it follows the last record")
            elif record.kind in ("training", "validation"):
                lines.append(record)
            elif record.kind in ("step", "figures"):
                yield Block(tuple(lines), record)
                lines = []
            elif record.kind == "end":
                self._end = record
            else:
                problem = f"a record of the kind {record.kind!r} is not expected here"
                self._findings.add(record.number, place_of(record), problem)
        if lines:
            yield Block(tuple(lines), None)

    def _compare_end(self) -> None:
        if self._end is None:
            self._findings.add(self._findings.counts["hashes"].of, Place(), "the last record is missing")
            return
        lacks = (
            lacking(self._launches, self._findings.steps, self._validations) if self._launches else "it has no launch"
        )
        if not self._findings.count("schedule", not lacks):
            self._findings.add(self._end.number, Place(), lacks)
        found = {"trajectories": self._findings.trajectories}
        place = Place(record=self._end.number)
        self._findings.compare("identities", self._end.number, place, difference(self._end.value, found))

    # --- replaying ------------------------------------------------------------------

    def _play(self, block: Block, url: str) -> bool:
        """Play a block's trajectories again and compare it; whether what follows can be recomputed."""
        findings = self._findings
        problem = self._problem(block)
        if problem:
            findings.add(block.first.number, place_of(block.closing or block.first), problem)
            return False
        closing, training = block.closing, block.closing.kind == "step"
        launch = self._launches[closing.value["launch"]]
        if training:
            self._rounds.enter(launch)
        stage = Stage(
            step=closing.value["step"],
            training=training,
            settings=launch.settings,
            budgets=launch.budgets,
            prompt_mode=launch.prompt_mode,
            omega=self._rounds.omega if training else None,
            sides=launch.sides("training" if training else "validation"),
        )
        lines = [Line(record, stage) for record in block.lines]
        played = played_again([line.again for line in lines if line.again], url)
        replays = [(line.written, line.compared(next(played) if line.again else None)) for line in lines]
        for record, found in replays:
            self._trajectory(record, found, training)
        if any(found.record is None for _, found in replays):
            return False
        if training:
            if stage.teaches:
                records, plays = [found.record for _, found in replays], [line.again for line in lines]
                expected = lessons(launch, stage.step, Omega.from_json(stage.omega), records, plays, url)
                for (record, found), each in zip(replays, expected, strict=True):
                    written = {name: found.written[name] for name in TAUGHT}
                    findings.compare("lessons", record.number, place_of(record), difference(written, each))
            self._rounds.play(stage.step, replays, closing)
            findings.steps = stage.step
        else:
            self._validation(launch, closing, replays)
            self._validations.append(stage.step)
        unknown = sorted(set(closing.value) - _KEYS[closing.kind])
        if unknown:
            findings.add(closing.number, place_of(closing), f"the key {unknown[0]!r} is not expected")
        return True

    def _problem(self, block: Block) -> str:
        """Why a block cannot be replayed; "" if it can."""
        if block.closing is None:
            return "nothing closes the step or the validation of its last trajectories"
        kind = "training" if block.closing.kind == "step" else "validation"
        value = block.closing.value
        if any(line.kind != kind for line in block.lines) or not block.lines:
            return f"it closes {len(block.lines)} trajectories that are not all of a {kind}"
        if not isinstance(value, dict) or not isinstance(step := value.get("step"), int):
            return "it names no step"
        if not isinstance(value.get("launch"), int) or not 0 <= value["launch"] < len(self._launches):
            return "it names no launch of this run"
        if kind == "validation":
            follows = max(*(step + 1 for step in self._validations[-1:]), self._findings.steps, 0)
            return "" if step >= follows else f"it is of step {step}, after step {follows}"
        if step != self._findings.steps + 1:
            return f"it is step {step}, where step {self._findings.steps + 1} is expected"
        if value["launch"] != (found := launch_of_step(self._launches, step)):
            return f"it names launch {value['launch']}, and launch {found} ran this step"
        return ""

    def _trajectory(self, record: Record, found: Replayed, training: bool) -> None:
        findings = self._findings
        findings.trajectories += 1
        findings.validations += not training
        if not training and found.record is not None:
            findings.validated.add((found.record.data_source, found.record.task_id))
        for aspect in ASPECTS:
            if aspect not in ("weights", "advantages"):  # of the step as a whole
                findings.count(aspect, aspect not in found.disagreeing)
        for problem in found.problems:
            findings.add(record.number, *problem)
        if found.record is not None:
            findings.taken["calls that exceeded a limit of the service"] += found.overdue
            findings.taken["trajectories lost to infrastructure"] += found.record.infra is not None

    def _validation(self, launch: Launch, closing: Record, replays: Sequence[tuple[Record, Replayed]]) -> None:
        """Compare which tasks were validated, and the figures."""
        findings = self._findings
        rows, samples = launch.rows("validation"), range(launch.validation_samples)
        expected = sorted([source, task, sample] for source, task, _ in rows for sample in samples)
        written = [[found.written[name] for name in ("data_source", "task_id", "sample")] for _, found in replays]
        place = place_of(closing)._replace(record=None)
        one = difference({"tasks": written}, {"tasks": expected})
        findings.compare("identities", closing.number, place, one)
        summaries = figures([found.record for _, found in replays], self._suspected)
        one = difference({"summaries": closing.value.get("summaries")}, {"summaries": summaries})
        findings.compare("validation figures", closing.number, place, one)


_KEYS = {"step": {"step", "launch", "steps", "profile", "omega"}, "figures": {"step", "launch", "summaries"}}
