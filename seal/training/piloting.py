"""The rollouts of a step that pilots its prompts: what `seal.pilot` decides, through verl's agent loops.

verl takes the number of a prompt's rollouts from its row (`__rollout_n__`), so a prompt is
sent once for its pilots and once more for the rest. The second sending has a uid of its own, because
verl numbers the rollouts of each from 0 and makes their keys of both; `first_sample` numbers
them on for seeds and records, and `join` puts them into the prompt's group.
"""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from omegaconf import DictConfig
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.utils import tensordict_utils as tu

from seal.pilot import Part, PilotPlan
from seal.settings import SealSettings
from seal.training.batch import join_groups, read_records
from seal.training.replay_buffer import TRAIN, SEALReplayBuffer


class Piloting:
    """Sends a step's prompts as their pilots come back.

    fetch: gives the next prompt, a batch of one row. submit: starts the rollouts of a
    batch of prompts. buffer: waits for them.
    """

    def __init__(
        self,
        config: DictConfig,
        settings: SealSettings,
        buffer: SEALReplayBuffer,
        fetch: Callable[[], TensorDict],
        submit: Callable[[TensorDict], Any],
    ):
        self._size = config.data.train_batch_size, config.actor_rollout_ref.rollout.n
        self._settings, self._seed = settings.sampling.pilot, settings.seed
        self._buffer, self._fetch, self._submit = buffer, fetch, submit
        self._begin(0)

    def _begin(self, step: int) -> None:
        self._plan = PilotPlan(self._settings, *self._size, self._seed, step)
        self._step = step
        self._rows: list[TensorDict] = []
        self._sent: dict[str, Part] = {}
        self._scores: dict[int, list[float | None]] = {}

    @property
    def fetched(self) -> int:
        """How many prompts the step has so far."""
        return len(self._rows)

    @property
    def figures(self) -> dict[str, int]:
        """The step's counts of prompts, for its record."""
        return self._plan.figures

    def play(self, step: int) -> None:
        """Send all rollouts of a step; those of the last sending are still under way at the end.

        Raises StopRequested when a stop is requested during a wait, and InfrastructureFailure
        when pilots never come back.
        """
        self._begin(step)
        self._send(self._plan.start())
        while self._plan.pilots:
            self._send(self._plan.go_on(self._wait(self._plan.pilots)))

    def join(self, batch: KVBatchMeta) -> None:
        """Put all rollouts of a prompt into its group."""
        join_groups(batch, {uid: self._uid(part.prompt) for uid, part in self._sent.items() if part.first})

    def line(self) -> dict[str, Any]:
        """What was decided and why, for `sampling.jsonl`: an entry for each prompt, in the order of the step."""
        rollouts = [0] * self.fetched
        for part in self._sent.values():
            rollouts[part.prompt] += part.samples
        entries = [_task(row) | {"rollouts": number} for row, number in zip(self._rows, rollouts, strict=True)]
        for prompt, verdict, probability, went_on in self._plan.decisions:
            entries[prompt] |= {
                "scores": self._scores[prompt],
                "verdict": verdict,
                "probability": probability,
                "went_on": went_on,
            }
        return {"pilots": entries}

    def _send(self, parts: Sequence[Part]) -> None:
        if not parts:
            return
        while self.fetched < self._plan.prompts:
            self._rows.append(self._next())
        # Rows are sent as copies: the sender adds columns to what it gets.
        rows = tu.concat_tensordict([self._rows[part.prompt].copy() for part in parts])
        uids = [str(uuid4()) if part.first else self._uid(part.prompt) for part in parts]
        columns = {
            "uid": uids,
            "__rollout_n__": [part.samples for part in parts],
            "first_sample": [part.first for part in parts],
            "inclusion": [part.inclusion for part in parts],
        }
        for name, values in columns.items():
            tu.assign_non_tensor_stack(rows, name, values)
        tu.assign_non_tensor_data(rows, "global_steps", self._step)
        sent = dict(zip(uids, parts, strict=True))
        self._sent |= sent
        self._buffer.expect_parts(sent)
        self._submit(rows)

    def _next(self) -> TensorDict:
        """The next prompt. Where the data begin anew within a step, one that the step has already is passed over:
        rollouts are seeded by step, row and sample, so it would be played the same again."""
        known = {_value(row, "index") for row in self._rows}
        while True:
            row = self._fetch()
            if _value(row, "index") not in known:
                return row

    def _wait(self, pilots: Sequence[Part]) -> list[list[float | None]]:
        """The rewards of pilots, None for one that was lost or excluded."""
        self._buffer.wait_for([self._uid(part.prompt) for part in pilots])
        keys = [f"{self._uid(part.prompt)}_{sample}_0" for part in pilots for sample in range(part.samples)]
        found = iter(read_records(TRAIN, keys))
        for part in pilots:
            own = [next(found) for _ in range(part.samples)]
            self._scores[part.prompt] = [record.score if record.usable else None for record in own]
        return [self._scores[part.prompt] for part in pilots]

    def _uid(self, prompt: int) -> str:
        return _value(self._rows[prompt], "uid")


def _task(row: TensorDict) -> dict[str, Any]:
    extra = _value(row, "extra_info")
    return {"task_id": extra["task_id"], "turns": int(extra["turns"]), "data_source": _value(row, "data_source")}


def _value(row: TensorDict, column: str) -> Any:
    """What a column of a single row holds."""
    return tu.get(row, column)[0]
