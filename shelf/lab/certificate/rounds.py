"""Algorithm 1 again, from replayed trajectories: groups, advantages, C_t, rho, w, Omega and the step's figures."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from seal.records.trajectory import TrajectoryRecord
from seal.training.closed_loop import ClosedLoop
from seal.training.group import Group, mark_groups
from shelf.lab.certificate.advantages import agrees, follow_from_rewards, group_advantages
from shelf.lab.certificate.fields import STEP_HASHED
from shelf.lab.certificate.file import Record
from shelf.lab.certificate.findings import Findings
from shelf.lab.certificate.launches import Launch
from shelf.lab.certificate.places import Difference, Place, difference
from shelf.lab.certificate.replay import Replayed


class Rounds:
    """C_t, rho_t and Omega_t as they follow from the rounds so far."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._loop: ClosedLoop | None = None
        self._launch: Launch | None = None

    def enter(self, launch: Launch) -> None:
        """Go on under the settings of a launch, as a resumed trainer does."""
        if self._launch is launch:
            return
        before, self._loop, self._launch = self._loop, ClosedLoop(launch.settings), launch
        if before is not None:
            self._loop.restore(before.state)

    @property
    def omega(self) -> Mapping[str, Any] | None:
        """Omega_t of the next round, or None where the interface is off."""
        return self._loop.omega_to_send()

    def play(self, step: int, replays: Sequence[tuple[Record, Replayed]], closing: Record) -> None:
        """Compute a round again and compare it with what its trajectories and its step's lines say."""
        launch = self._launch
        records = tuple(found.record for _, found in replays)
        prompts = [position // launch.samples for position in range(len(records))]
        self._compare_batch(step, replays, prompts, closing)
        groups = mark_groups([str(prompt) for prompt in prompts], records)
        advantages = self._advantages(records, groups, replays)
        weights, report = self._loop.step(step, records, groups, advantages)
        self._compare_weights(replays, weights)
        for name, expected in report.lines().items():
            self._compare_line(step, name, closing, json.loads(json.dumps(expected)))

    def _compare_batch(
        self, step: int, replays: Sequence[tuple[Record, Replayed]], prompts: Sequence[int], closing: Record
    ) -> None:
        """Whether the step has all samples of all its prompts, each once."""
        launch = self._launch
        place = Place(step=step)
        if len(replays) != launch.prompts * launch.samples:
            one = Difference(("trajectories",), len(replays), launch.prompts * launch.samples)
            self._findings.compare("identities", closing.number, place, one)
        for position, (record, found) in enumerate(replays):
            first = replays[prompts[position] * launch.samples][1].written
            expected = {
                "sample": position % launch.samples,
                "group": prompts[position],
                "task_id": first["task_id"],
                "data_source": first["data_source"],
            }
            written = {name: found.written[name] for name in expected}
            self._findings.compare("identities", record.number, _place(step, found), difference(written, expected))

    def _advantages(
        self, records: Sequence[TrajectoryRecord], groups: Sequence[Group], replays: Sequence[tuple[Record, Replayed]]
    ) -> list[float]:
        """Each trajectory's advantage as it was logged, or as it follows from the rewards where the log disagrees."""
        config = self._launch.config
        written = [found.written["advantage"] for _, found in replays]
        if not follow_from_rewards(config):
            self._findings.taken["advantages, which do not follow from rewards alone"] += len(written)
            return [value or 0.0 if group.counts else 0.0 for value, group in zip(written, groups, strict=True)]
        by_deviation = config["algorithm"].get("norm_adv_by_std_in_grpo", True)
        expected = group_advantages(records, groups, by_deviation=by_deviation)
        spread: dict[str, set[float]] = {}
        for each, group in zip(records, groups, strict=True):
            spread.setdefault(group.uid, set()).update({each.score} if group.counts else ())
        advantages = []
        for (record, found), value, other, group in zip(replays, written, expected, groups, strict=True):
            same = agrees(value, other, equal_rewards=len(spread[group.uid]) == 1)
            one = None if same else Difference(("advantage",), value, other)
            self._findings.compare("advantages", record.number, _place(records[0].step, found), one)
            advantages.append(value if same else other)
        return advantages

    def _compare_weights(self, replays: Sequence[tuple[Record, Replayed]], weights: Sequence[float]) -> None:
        for (record, found), weight in zip(replays, weights, strict=True):
            expected = {"w": weight}
            written = {name: found.written[name] for name in expected}
            place = _place(found.record.step, found)
            self._findings.compare("weights", record.number, place, difference(written, expected))

    def _compare_line(self, step: int, name: str, closing: Record, expected: dict[str, Any]) -> None:
        written = closing.value.get(name)
        if not isinstance(written, dict):
            written = {}
        if name == "steps":
            expected |= {key: written[key] for key in STEP_HASHED if key in written}
            told = written.get("teaching")
            for cue, row in expected.get("teaching", {}).items():
                if isinstance(told, dict) and isinstance(told.get(cue), dict) and "transfer" in told[cue]:
                    row["transfer"] = told[cue]["transfer"]
        named = {key for keys in ASPECTS_OF_LINES[name].values() for key in keys}
        for what, keys in ASPECTS_OF_LINES[name].items():
            chosen = set(keys) or {*expected, *written} - named
            theirs, mine = ({key: each[key] for key in sorted(chosen & set(each))} for each in (written, expected))
            one = difference(theirs, mine)
            if one is not None:
                one = one._replace(path=(name, *one.path))
            self._findings.compare(what, closing.number, Place(step=step), one)


ASPECTS_OF_LINES: dict[str, dict[str, tuple[str, ...]]] = {
    "profile": {"C_t": ()},
    "omega": {"Omega": ()},
    "steps": {"rho": ("rho",), "Omega": ("omega", "events"), "step figures": ()},
}
"""The name under which the fields of each log's line are counted; () for all others of the line."""


def _place(step: int | None, found: Replayed) -> Place:
    return Place(step=step, task=found.written["task_id"], sample=found.written["sample"])
