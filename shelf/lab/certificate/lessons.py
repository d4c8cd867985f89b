"""What a teacher showed and taught in a step, as it follows from the replayed trajectories (`seal.teacher`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seal.diagnosis.sources import named_failures
from seal.interface.cues import Omega
from seal.records.trajectory import CUTS, TrajectoryRecord
from seal.teacher import answering, is_control, sees_omega
from shelf.lab.certificate.launches import Launch
from shelf.view.again import Again, played_again


def lessons(
    launch: Launch,
    step: int,
    omega: Omega,
    records: Sequence[TrajectoryRecord],
    plays: Sequence[Again | None],
    url: str,
) -> Iterator[Mapping[str, Any]]:
    """The fields cues, taught and silent of each trajectory of a step, in their order.

    omega: Omega_t. records: as replayed. plays: how; a lesson is the same play without Omega.
    """
    told = [n for n, each in enumerate(records) if each.cues and each.usable and each.passed and not each.truncated]
    again = [replace(plays[n], params={k: v for k, v in plays[n].params.items() if k != "omega"}) for n in told]
    taught = {n for n, each in zip(told, played_again(again, url), strict=True) if each.usable and each.passed}
    interface, cut = launch.settings.interface, launch.settings.reward.cut
    for first in range(0, len(records), launch.samples):
        prompt = records[first : first + launch.samples]
        answers = _answers(launch, step, omega, prompt)
        for number, each in enumerate(prompt, start=first):
            pupil = not sees_omega(each.sample, interface.share)
            control = interface.teacher == "retry" and is_control(each.sample, interface.share, launch.samples)
            cues = () if pupil or control else answers
            unsaid = bool(cues) and number not in taught
            failed = (bool(cues) or (interface.teacher == "plain" and not pupil)) and not each.passed
            silent = each.usable and (unsaid or failed or (each.stop in CUTS and cut == "silent"))
            yield {"cues": list(cues), "taught": number in taught, "silent": silent}


def _answers(launch: Launch, step: int, omega: Omega, prompt: Sequence[TrajectoryRecord]) -> tuple[str, ...]:
    """The cues that those of a prompt's share see."""
    settings, first = launch.settings, prompt[0]
    if settings.interface.teacher != "retry":
        return omega.for_category(first.category) if settings.interface.teacher == "share" else ()
    plain = [each for each in prompt if each.usable and not sees_omega(each.sample, settings.interface.share)]
    failed = frozenset() if any(each.passed for each in plain) else frozenset().union(*(each.signals for each in plain))
    rows, own = [row[:2] for row in launch.rows("training")], (first.data_source, first.task_id)
    place = f"{step}/{rows.index(own) if own in rows else None}"
    labels = named_failures(failed, settings.diagnosis, settings.rollout.seed, place)
    return answering(omega, first.category, labels).for_category(first.category)
