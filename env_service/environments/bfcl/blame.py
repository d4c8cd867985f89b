"""Tell a turn's own fault from one that it inherited from an earlier turn.

State errors cascade: after one wrong turn, later turns miss the expected state
whatever they do. The simulators are exact and deterministic, so nothing has to be
guessed: the calls of a failed turn are played from the reference's state before
that turn. When the turn passes there, its failure was inherited. That takes
well below a millisecond, unless the policy made calls near their deadline.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.tools import Toolbox, parse_reference
from env_service.environments.bfcl.verifier import Played, compare, reference
from seal.diagnosis.evidence import Blame

Turns = Sequence[Sequence[Played]]

REPLAY_SECONDS = 2.0
"""Processor time after which no further call is played."""


def blame(
    task: Task, turns: Turns, failed: Sequence[bool], seconds: float = REPLAY_SECONDS
) -> tuple[Blame | None, ...]:
    """Return whose fault each turn is; None for turns that did not fail.

    turns: the calls of each turn that took place. failed: whether it missed the
    verifier; of a turn without a reference, only its calls can be a fault. When every
    failure was inherited, the first turn that makes one of them fail is to blame
    although it passed itself: it left the simulators elsewhere, for example in
    another folder. seconds: the processor time of all replays together, up to one more
    call; failures that are not decided by then are their turn's own.
    """
    references = [[Played(*parse_reference(call)) for call in calls] for calls in task.reference[: len(turns)]]
    found: list[Blame | None] = [None] * len(turns)
    deadline = time.process_time() + seconds
    for index, (calls, expected) in enumerate(zip(turns, references, strict=True)):
        if not expected:
            found[index] = "own" if calls else None
        elif failed[index]:
            found[index] = "inherited" if _passes(task, references, {index: calls}, index, deadline) else "own"
            if found[index] == "inherited" and "own" not in found:
                found[_origin(task, references, turns, index, deadline)] = "own"
    return tuple(found)


def _origin(task: Task, references: Turns, turns: Turns, index: int, deadline: float) -> int:
    """The first earlier turn whose calls make turn `index` fail; the turn itself when none does."""
    for earlier in range(index):
        played = {earlier: turns[earlier], index: turns[index]}
        if turns[earlier] != references[earlier] and _passes(task, references, played, index, deadline) is False:
            return earlier
    return index


def _passes(
    task: Task, references: Turns, played: dict[int, Sequence[Played]], index: int, deadline: float
) -> bool | None:
    """Whether turn `index` passes when the turns of `played` replace the reference's own; None past the deadline."""
    if not played[index]:
        return False
    if played == {index: references[index]}:
        return True
    toolbox, results = Toolbox(task), []
    for number, calls in enumerate(references[: index + 1]):
        for call in played.get(number, calls):
            if time.process_time() > deadline:
                return None
            results.append(toolbox.call(call.name, call.arguments).text if call.text is None else call.text)
    return compare(reference(task)[index], toolbox.instances, True, results).passed
