"""Tell a turn's own fault from an inherited one (docs/how-it-works.md#own-and-inherited-faults).

The calls of a failed turn are replayed from the reference's state before that turn:

- own: the turn fails there too, made or tried calls although none was needed, or is the first turn whose calls make a
  later turn fail (possibly a turn that passed itself but left the world in another state, such as another folder);
- inherited: the turn passes there.

With default limits a replay takes well below a millisecond, unless the policy made calls near their deadline or another
process has the world. If a failure is not decided in time, it counts as its turn's own.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from env_service.environments.kit.scene import History, Scene
from env_service.environments.kit.tasks import World
from seal.method.diagnosis.evidence import Blame, CallEvidence

REPLAY_SECONDS = 2.0
"""Processor time after which no further call is played; replays that wait without computing get six times as long."""
_WAITING_FACTOR = 6


def blame(
    scene: Scene,
    turns: History,
    failed: Sequence[bool],
    hopeless: Collection[int] = (),
    seconds: float = REPLAY_SECONDS,
) -> tuple[Blame | None, ...]:
    """Return for each turn whose fault it is; None for turns that did not fail.

    turns: the calls of each turn that took place. failed: whether the verifier rejected it; a turn without a reference
    is judged by its calls. hopeless: turns that fail from any state. seconds: processor time for all replays together.
    """
    replays = _Replays(scene, turns, seconds)
    blames: list[Blame | None] = [None] * len(turns)
    for index, calls in enumerate(turns):
        if not replays.references[index]:
            blames[index] = "own" if calls or index in hopeless else None
        elif failed[index]:
            inherited = index not in hopeless and replays.passes(index, {index: calls})
            blames[index] = "inherited" if inherited else "own"
            if inherited and "own" not in blames:
                blames[replays.origin(index)] = "own"
    return tuple(blames)


class _Replays:
    """Plays turns of an episode in place of the reference's own turns."""

    def __init__(self, scene: Scene, turns: History, seconds: float) -> None:
        self._scene, self._turns = scene, turns
        limits = {time.process_time: seconds, time.monotonic: _WAITING_FACTOR * seconds}
        self._deadlines = {clock: clock() + limit for clock, limit in limits.items()}
        self.references = [[CallEvidence(*call, True) for call in scene.reference(turn)] for turn in range(len(turns))]

    def origin(self, index: int) -> int:
        """The first earlier turn whose calls make turn `index` fail; the turn itself when none does."""
        for earlier in range(index):
            played = {earlier: self._turns[earlier], index: self._turns[index]}
            if not self._is_reference(earlier) and self.passes(index, played) is False:
                return earlier
        return index

    def passes(self, index: int, played: Mapping[int, Sequence[CallEvidence]]) -> bool | None:
        """Return whether a turn passes if the turns of `played` replace the reference's own; None past the deadline."""
        if not played[index]:
            return False
        if set(played) == {index} and self._is_reference(index):
            return True
        if self._late():
            return None
        world, history = self._scene.world(), []
        for number, calls in enumerate(self.references[: index + 1]):
            history.append([])
            for call in played.get(number, calls):
                if self._late():
                    return None
                history[-1].append(self._again(world, call))
        return self._scene.check(world, index, history).passed

    def _late(self) -> bool:
        return any(clock() > deadline for clock, deadline in self._deadlines.items())

    def _again(self, world: World, call: CallEvidence) -> CallEvidence:
        """The call made in another world; a call that did not run the first time is not run now."""
        if self._was_run(call):
            outcome = world.call(call.name, self._scene.own(call.arguments))
            return replace(call, result=outcome.text, error=outcome.error)
        return call

    def _was_run(self, call: CallEvidence) -> bool:
        refused = self._scene.refused(call.name, call.available, call.violations)
        return refused is None and call.error not in ("unavailable", "deadline")

    def _is_reference(self, turn: int) -> bool:
        made = [(call.name, call.arguments, self._was_run(call)) for call in self._turns[turn]]
        return made == [(call.name, call.arguments, True) for call in self.references[turn]]
