"""The step plan: what one training step of a recipe does, computed as in `seal/launch/checks/plan.py`."""

from dataclasses import dataclass

from omegaconf import DictConfig

from seal.launch.checks.plan import budgets, device_parts, fixed_rows, packed_tokens, rows_per_rank
from seal.launch.recipe import count

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"


@dataclass(frozen=True)
class StepPlan:
    """One training step, in rows (trajectories), devices and tokens.

    ranks: data-parallel parts of the actor. engines: rollout replicas. rows_per_rank: rows of one mini-batch on one
    rank. packed: tokens of one micro-batch, None if micro-batches hold a fixed number of rows. longest: tokens that a
    training row can reach. prompt, message, response, model: the budgets of a first prompt, an assistant message,
    everything after the prompt, and the engine. most_micro_batches: in one mini-batch on one rank, if every row has
    the maximal length. in_flight: trajectories that are played at a time. engine_slots: trajectories for which an
    engine generates at a time.
    """

    prompts: int
    samples: int
    devices: int
    ranks: int
    engines: int
    mini_batches: int
    optimizer_steps: int
    rows_per_rank: int
    most_micro_batches: int
    rows_per_micro_batch: int | None
    prompt: int
    message: int
    response: int
    model: int
    packed: int | None
    longest: int
    in_flight: int
    engine_slots: int

    @property
    def rows(self) -> int:
        """Trajectories per step."""
        return self.prompts * self.samples


def step_plan(config: DictConfig) -> StepPlan:
    """The plan of a resolved configuration; LaunchError for the first value that does not fit."""
    prompts, samples = count(config, "data.train_batch_size"), count(config, f"{_ROLLOUT}.n")
    rows, (devices, ranks, engines) = rows_per_rank(config), device_parts(config)
    mini_batches = prompts // count(config, f"{_ACTOR}.ppo_mini_batch_size")
    prompt, message, response, model = budgets(config)
    packed = packed_tokens(config, message)
    longest = min(prompt + response, model, packed or model)
    fixed = None if packed else fixed_rows(config, rows)
    workers = count(config, f"{_ROLLOUT}.agent.num_workers") * count(config, "seal.rollout.concurrency")
    return StepPlan(
        prompts=prompts,
        samples=samples,
        devices=devices,
        ranks=ranks,
        engines=engines,
        mini_batches=mini_batches,
        optimizer_steps=mini_batches * count(config, f"{_ACTOR}.ppo_epochs"),
        rows_per_rank=rows,
        most_micro_batches=-(-rows // (fixed or packed // longest)),
        rows_per_micro_batch=fixed,
        prompt=prompt,
        message=message,
        response=response,
        model=model,
        packed=packed,
        longest=longest,
        in_flight=min(prompts * samples, workers),
        engine_slots=count(config, f"{_ROLLOUT}.max_num_seqs"),
    )
