"""Mini-batches of whole rollouts: verl counts rows, and a rollout has one for each of its dialogues.

A mini-batch holds as many rollouts as the recipe says, so that a step has as many updates as the recipe says and a
token mean is over the tokens of whole rollouts.
"""

import math
from itertools import chain, product
from statistics import fmean

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from seal.training.batch import by_rollout


class WholeRollouts(PPOTrainer):
    """verl's mini-batches if each rollout has one dialogue; else each is filled up to the rows of the widest."""

    _width: int | None = None
    """Rows of a mini-batch, if some rollout has several rows."""
    _ranks: int | None = None
    """Data-parallel ranks, among which verl divides a batch from its first row to its last; known once verl has asked
    for the rows of a mini-batch."""

    def _balance_batch(self, batch, metrics, *args, **kwargs):
        self._width, rollouts = None, by_rollout(batch.keys)
        if len(rollouts) == len(batch):
            return super()._balance_batch(batch, metrics, *args, **kwargs)
        size = self.config.actor_rollout_ref.actor.ppo_mini_batch_size * self.config.actor_rollout_ref.rollout.n
        keys = [[*chain(*rollouts[start : start + size])] for start in range(0, len(rollouts), size)]
        self._width = max(map(len, keys))
        figures: list[dict[str, float]] = [{} for _ in keys]
        balance = super()._balance_batch
        parts = [balance(batch.select_keys(each), own) for each, own in zip(keys, figures, strict=True)]
        metrics.update({name: fmean(own[name] for own in figures) for name in figures[0]})
        share, balanced = self._width // self._ranks, []
        for start, part in product(range(0, self._width, share), parts):
            balanced += zip(part.keys[start : start + share], part.tags[start : start + share], strict=True)
        keys, tags = map(list, zip(*balanced, strict=True))
        return KVBatchMeta(keys, tags, batch.partition_id, extra_info=batch.extra_info)

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        if self._width is None:
            return super()._get_required_batch_multiple(dp_size)
        parts = self.config.actor_rollout_ref
        sizes = [(parts.actor.use_dynamic_bsz, parts.actor.ppo_micro_batch_size_per_gpu)]
        sizes += [
            (part.log_prob_use_dynamic_bsz, part.log_prob_micro_batch_size_per_gpu)
            for part in (parts.rollout, parts.ref)
        ]
        micro = math.lcm(*(rows for dynamic, rows in sizes if rows and not dynamic))
        unit = math.lcm(dp_size * micro, parts.rollout.n)
        self._ranks, self._width = dp_size, -(-self._width // unit) * unit
        return self._width

    def _update_actor(self, batch, metrics):
        if self._width is None:
            return super()._update_actor(batch, metrics)
        actor = self.config.actor_rollout_ref.actor
        prompts = actor.ppo_mini_batch_size
        try:  # verl asks for the rows of a mini-batch in prompts
            actor.ppo_mini_batch_size = self._width // self.config.actor_rollout_ref.rollout.n
            return super()._update_actor(batch, metrics)
        finally:
            actor.ppo_mini_batch_size = prompts

    def _compute_metrics(self, batch, metrics, *args, **kwargs):
        """verl's figures, of each rollout's main dialogue."""
        main = {dialogues[-1] for dialogues in by_rollout(batch.keys)}
        rows = zip(batch.keys, batch.tags, strict=True)
        tags = [tag if key in main else tag | {"is_padding": True} for key, tag in rows]
        batch = KVBatchMeta(keys=batch.keys, tags=tags, partition_id=batch.partition_id)
        super()._compute_metrics(batch, metrics, *args, **kwargs)
