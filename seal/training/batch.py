"""The trajectories of one training step; the only module that reads and writes their fields in verl's TransferQueue.

Below, n is the number of trajectories and m >= n that of their dialogues: a trajectory has several dialogues if a
harness branches off or rewrites its history. L_i is the number of response tokens of dialogue i: assistant messages
and, masked, what the environment answered. Whatever is counted or weighed is a trajectory.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Self

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.utils import tensordict_utils as tu
from verl.utils.debug.metrics import calculate_debug_metrics

from seal.records.trajectory import TrajectoryRecord
from seal.settings import SealSettings
from seal.training.closed_loop import Group, mark_groups, plain_advantages


def take_engine_logprobs(batch: KVBatchMeta) -> KVBatchMeta:
    """Make the engine's log-probs of sampled tokens PPO's old ones; returns the batch."""
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["rollout_log_probs"])
    data["old_log_probs"] = data.pop("rollout_log_probs")
    tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=data)
    return batch


def by_rollout(keys: Iterable[str]) -> list[list[str]]:
    """verl's keys of dialogues, `{prompt uid}_{sample}_{dialogue}`, by rollout; the main one of each is last."""
    rollouts: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        rollouts[key.rpartition("_")[0]].append(key)
    return [sorted(dialogues, key=lambda key: int(key.rpartition("_")[2])) for dialogues in rollouts.values()]


@dataclass(frozen=True)
class StepBatch:
    """One step's n trajectories, without verl's padding.

    partition, keys: where TransferQueue holds their m dialogues, by trajectory, the main one of each last (verl spreads
    its batch over ranks, whose order is another). owners: the trajectory of each dialogue, from 0. records, groups:
    what is known of each trajectory, and its standing in its GRPO group. The rest is by dialogue, and empty until
    `with_tokens`: advantages are verl's group-relative A_j, one value per response token, (L_i,) each; masks are True
    for sampled tokens, (L_i,) each; rollout_logprobs and actor_logprobs are natural logarithms of the sampled tokens'
    probabilities under the rollout engine and under the actor before its update, (L_i,) each, or empty when the recipe
    does not compute one of them.
    """

    partition: str
    keys: tuple[str, ...]
    owners: tuple[int, ...]
    records: tuple[TrajectoryRecord, ...]
    groups: tuple[Group, ...]
    advantages: tuple[torch.Tensor, ...] = ()
    masks: tuple[torch.Tensor, ...] = ()
    rollout_logprobs: tuple[torch.Tensor, ...] = ()
    actor_logprobs: tuple[torch.Tensor, ...] = ()

    @classmethod
    def read(cls, batch: KVBatchMeta) -> Self:
        """Read the records of a batch of finished rollouts."""
        rollouts = by_rollout(key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding"))
        owners = [number for number, dialogues in enumerate(rollouts) for _ in dialogues]
        main = [dialogues[-1] for dialogues in rollouts]
        data = tq.kv_batch_get(keys=main, partition_id=batch.partition_id, select_fields=["uid", "extra_fields"])
        texts = (extra["reward_extra_info"]["seal"] for extra in data.pop("extra_fields").tolist())
        records = [TrajectoryRecord.from_json(text) for text in texts]
        groups = mark_groups(data.pop("uid").tolist(), records)
        return cls(batch.partition_id, tuple(chain(*rollouts)), tuple(owners), tuple(records), tuple(groups))

    def with_tokens(self, scored_by_actor: bool = True) -> Self:
        """Return the batch with the tensors that verl has computed for its tokens.

        scored_by_actor: whether the old log-probs are the actor's; the engine's own are not compared with themselves.
        """
        fields = ["advantages", "response_mask", "rollout_log_probs", "old_log_probs"]
        data = tq.kv_batch_get(keys=list(self.keys), partition_id=self.partition, select_fields=fields)
        compared = scored_by_actor and "rollout_log_probs" in data and "old_log_probs" in data
        return replace(
            self,
            advantages=data["advantages"].unbind(),
            masks=tuple(mask.bool() for mask in data["response_mask"].unbind()),
            rollout_logprobs=data["rollout_log_probs"].unbind() if compared else (),
            actor_logprobs=data["old_log_probs"].unbind() if compared else (),
        )

    @property
    def group_advantages(self) -> list[float]:
        """The mean of A_j over the sampled tokens of each trajectory; 0 for one that does not train or has none."""
        return [
            each.double().mean().item() if group.trains and len(each) else 0.0
            for each, group in zip(self._sampled(self.advantages), self.groups, strict=True)
        ]

    def push(self, written: Self) -> dict[str, float]:
        """|A| summed over the tokens in the loss, of each sign, as written and unweighted; {} if all are 0."""
        sums = dict.fromkeys(("successes", "failures", "successes_unweighted", "failures_unweighted"), 0.0)
        for mine, weighted in zip(self._sampled(self.advantages), written._sampled(written.advantages), strict=True):
            name = "successes" if mine.sum() > 0 else "failures"
            sums[name] += weighted.abs().double().sum().item()
            sums[f"{name}_unweighted"] += mine.abs().double().sum().item()
        return sums if any(sums.values()) else {}

    def _sampled(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """A value per response token, (L_i,) by dialogue, of the sampled tokens of each trajectory in one row."""
        rows: list[list[torch.Tensor]] = [[] for _ in self.records]
        for owner, each, mask in zip(self.owners, values, self.masks, strict=True):
            rows[owner].append(each[mask])
        return [torch.cat(row) for row in rows]

    def separate(self) -> None:
        """Keep what does not count out of verl's step; call before verl computes advantages.

        A trajectory that infrastructure lost or the recipe excludes gets a uid of its
        own and so leaves its group's baseline. One that does not train gets empty
        masks, so that it has no part in the policy loss, the KL term or the token mean.
        """
        apart = [key for key, owner in zip(self.keys, self.owners, strict=True) if not self.records[owner].usable]
        if apart:
            self._put(apart, tu.list_of_dict_to_tensordict([{"uid": f"{key}-apart"} for key in apart]))
        silent = [key for key, owner in zip(self.keys, self.owners, strict=True) if not self.groups[owner].trains]
        if silent:
            data = tq.kv_batch_get(keys=silent, partition_id=self.partition, select_fields=["response_mask"])
            empty = _ragged([torch.zeros_like(mask) for mask in data["response_mask"].unbind()])
            self._put(silent, TensorDict({"response_mask": empty, "loss_mask": empty}, batch_size=len(silent)))

    def take_plain_logprobs(self) -> dict[int, float]:
        """Replace the engine's log-probs of lessons, which it sampled with cues in sight, by the actor's.

        So PPO's ratio and verl's rollout correction start at 1 for a lesson. Returns, by the number of the trajectory,
        log pi(y | plain prompt) - log pi(y | with cues) in nats.
        """
        lessons = {key: i for key, i in zip(self.keys, self.owners, strict=True) if self.records[i].taught}
        if not lessons:
            return {}
        keys, fields = [*lessons], ["old_log_probs", "rollout_log_probs", "response_mask"]
        data = tq.kv_batch_get(keys=keys, partition_id=self.partition, select_fields=fields)
        plain, cued, masks = (data[name].unbind() for name in fields)
        self._put(keys, TensorDict({"rollout_log_probs": _ragged(list(plain))}, batch_size=len(keys)))
        rows = zip(lessons.values(), plain, cued, masks, strict=True)  # each lesson is one dialogue
        return {i: (mine - other)[mask.bool()].double().sum().item() for i, mine, other, mask in rows}

    def rollout_differences(self) -> dict[str, float]:
        """verl's figures of the difference between engine and actor, without lessons, which the engine saw with cues.

        Keys and units as verl logs them (`calculate_debug_metrics`).
        """
        keys = [key for key, owner in zip(self.keys, self.owners, strict=True) if not self.records[owner].taught]
        fields = ["responses", "response_mask", "rollout_log_probs", "old_log_probs"]
        data = tq.kv_batch_get(keys=keys, partition_id=self.partition, select_fields=fields)
        return calculate_debug_metrics(DataProto(batch=data.to_padded_tensor()))

    def compare_logprobs(self, step: int, settings: SealSettings) -> dict[str, float]:
        """Return the largest and the mean absolute difference of the log-probs of sampled tokens; {}: not compared.

        Only trajectories that the weights of the previous step sampled are compared. The engine and the actor hold the
        same weights for them, as `seal.backends.vllm_plugin` has checked: what is left is numerical. A single token can
        differ a lot, so the mean is bounded. RuntimeError for a mean beyond `seal.logprob_mean_tolerance` (None sets no
        limit), which shows that the two compute different things, and for a difference that is not finite.
        """
        if not self.rollout_logprobs:
            return {}
        owners = (self.records[owner] for owner in self.owners)
        rows = zip(owners, self.rollout_logprobs, self.actor_logprobs, self.masks, strict=True)
        fresh = [
            (rollout - actor)[mask].abs().float().cpu()
            for record, rollout, actor, mask in rows
            if record.weights in (None, (step - 1, step - 1)) and not record.taught
        ]
        if not fresh or not len(differences := torch.cat(fresh)):
            return {}
        largest, mean = differences.max().item(), differences.mean().item()
        if not math.isfinite(mean):
            raise RuntimeError(
                f"Log-probs of step {step} are not finite: the weights have diverged. Resume from an earlier "
                "checkpoint with a smaller actor_rollout_ref.actor.optim.lr."
            )
        limit = settings.logprob_mean_tolerance
        if limit is not None and mean > limit:
            raise RuntimeError(
                f"In step {step} log-probs of rollout engine and actor differ by {mean:.2e} on average (largest "
                f"{largest:.2e}), more than seal.logprob_mean_tolerance={limit:.0e}: they compute the same weights "
                "differently. Compare the precision and the attention of both, or raise the tolerance."
            )
        return {"logp_diff_max": largest, "logp_diff_mean": mean}

    def with_plain_baselines(self, by_deviation: bool) -> Self:
        """Return the batch with a teacher's advantages of plain rollouts (`plain_advantages`)."""
        plain = plain_advantages(self.records, self.groups, by_deviation=by_deviation)
        rows = zip(self.owners, self.advantages, self.masks, strict=True)
        found = (plain[owner] * mask.to(each.dtype) if owner in plain else each for owner, each, mask in rows)
        return replace(self, advantages=tuple(found))

    def weighted(self, w: Sequence[float]) -> Self:
        """Return the batch with w_j A_j (paper, section 3.4)."""
        rows = zip(self.advantages, self.owners, strict=True)
        return replace(self, advantages=tuple(advantage * w[owner] for advantage, owner in rows))

    def write_advantages(self) -> None:
        """Give verl the advantages of this batch."""
        self._put(list(self.keys), TensorDict({"advantages": _ragged([*self.advantages])}, batch_size=len(self.keys)))

    def _put(self, keys: list[str], fields: TensorDict) -> None:
        tq.kv_batch_put(keys=keys, partition_id=self.partition, fields=fields)


def _ragged(rows: list[torch.Tensor]) -> torch.Tensor:
    """Return rows of different lengths, (L_j,) each, as one jagged nested tensor (n, L_j)."""
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
