"""A run of a recipe before it starts: its steps and budgets, its tasks, and its load on a GPU."""

import json
import statistics
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rich.table import Table

from seal.launch.checks.model import configuration
from seal.launch.recipe import Recipe, total_steps
from seal.system.errors import LaunchError
from shelf.operate.fit import DISK, GB, GIB, GPUS, Fit, Gpu, ModelSizes, Work, fit, seconds, user_seconds, work
from shelf.operate.lengths import Length, lengths
from shelf.operate.step import StepPlan, step_plan

KNOWN = Path(__file__).parent / "models.json"
"""The sizes of the models that recipes name, so that no hub is needed for them."""

Lines = list[tuple[str, str]]


def model_of(recipe: Recipe) -> ModelSizes:
    """The sizes of a recipe's model; LaunchError without a config.json, ValueError for one that lacks a size."""
    return _known(recipe.config.actor_rollout_ref.model.path) or ModelSizes.of(configuration(recipe))


def memory_gb(recipe: Recipe) -> float:
    """GB that each machine needs: seal.min_memory_gb, or weights and optimizer in host memory if these are more."""
    needed = recipe.settings.min_memory_gb
    with suppress(LaunchError, ValueError):  # a model of unknown size
        return max(needed, fit(recipe.config, step_plan(recipe.config), model_of(recipe), GPUS["H100"]).host / GB)
    return needed


def _known(name: str) -> ModelSizes | None:
    return (sizes := json.loads(KNOWN.read_text(encoding="utf-8")).get(name)) and ModelSizes.of(sizes)


@dataclass(frozen=True)
class RunPlan:
    """A recipe's step, its tasks in tokens (with the cues that training may show), and the size of a step over them."""

    recipe: Recipe
    step: StepPlan
    tasks: tuple[Length, ...]
    work: Work

    @classmethod
    def of(cls, recipe: Recipe) -> Self:
        """The plan of a recipe; LaunchError if the step does not divide or a first prompt exceeds its budget."""
        step = step_plan(recipe.config)
        tasks = tuple(lengths(recipe, recipe.rows.train, recipe.settings.shows_omega))
        longest = max(task.prompt for task in tasks)
        if longest > step.prompt:
            raise LaunchError(
                f"The longest first prompt has about {longest} tokens and data.max_prompt_length is {step.prompt}: "
                f"raise it to {longest * 21 // 20} or more."
            )
        return cls(recipe, step, tasks, work(step, tasks))

    def lines(self) -> Lines:
        """The parts of a step, their sizes, and the disk space and memory for which `seal doctor` looks."""
        needs = self.recipe.settings
        return [
            *_budgets(self.step),
            *self._tasks(),
            ("disk", f"{needs.min_free_gb:g} GiB free for checkpoints (seal.min_free_gb)"),
            ("memory", f"{memory_gb(self.recipe):.0f} GB on each machine (seal.min_memory_gb={needs.min_memory_gb:g})"),
        ]

    def _tasks(self) -> Iterator[tuple[str, str]]:
        step, tasks = self.step, self.tasks
        longest = max(task.prompt for task in tasks)
        rest = sum(task.rest > step.response for task in tasks)
        whole = sum(task.prompt + task.rest > step.model for task in tasks)
        yield "tasks", f"{len(tasks)}; first prompts of {self.work.prompt:,.0f} tokens, {longest:,} at most"
        yield "too long", f"{rest} with more than {step.response:,} tokens after it, {whole} with {step.model:,} in all"
        yield "tokens of a step", f"{self.work.step / 1e6:.2f} million, {self.work.row:,.0f} per trajectory"
        if self._part:
            least, most = step.rows * 2, step.rows * self._requests
            yield "requests to the user", f"{least:,} to {most:,} in a step; its part has {self._part:,.0f} tokens"
        if step.packed:
            yield "micro-batches", f"{self.work.micro_batches:.1f} per mini-batch and rank, {self.work.fill:.0%} full"

    @property
    def _part(self) -> float:
        """Tokens of the part of a user that a model plays; 0 without such a user."""
        return statistics.mean(task.part for task in self.tasks)

    @property
    def _requests(self) -> int:
        """The most requests of a rollout to its user: one before the policy speaks, and one after each message."""
        return self.recipe.settings.rollout.max_steps + 1

    def on(self, gpu: Gpu, model: ModelSizes) -> Fit:
        """Return the memory that the run takes on a GPU."""
        return fit(self.recipe.config, self.step, model, gpu)

    def gpu_lines(self, gpu: Gpu, model: ModelSizes, price: float | None) -> Lines:
        """Memory, time and cost on a GPU."""
        config, step, found = self.recipe.config, self.step, self.on(gpu, model)
        stages = seconds(config, step, model, gpu, self.work)
        if self._part and (user := _known(self.recipe.settings.user.model)):
            stages["user on one GPU"] = user_seconds(self._requests, self._part, user, gpu, step.in_flight)
        trainer = config.trainer
        steps = 0 if trainer.val_only else total_steps(config, len(self.tasks))
        validations = int(trainer.val_before_train) + _times(steps, trainer.test_freq)
        saves = _times(steps, trainer.save_freq)
        rows = (*self.recipe.rows.val, *(self.recipe.rows.withdrawal if self.recipe.settings.shows_omega else ()))
        validated = len(rows) * config.actor_rollout_ref.rollout.val_kwargs.n / step.rows
        validation = (stages["rollouts"] + stages.get("user on one GPU", 0)) * max(1, validated)
        each = sum(stages.values()), validation, 12 * model.parameters / DISK
        hours = sum(count * each_s for count, each_s in zip((steps, validations, saves), each, strict=True)) / 3600
        bucket = config.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes << 20
        largest = 4 * model.largest
        alone = "" if largest <= bucket else ", so it is sent by itself"
        cost = f", {hours * step.devices * price:,.0f} at {price:g} per GPU hour" if price else ""
        return [
            ("parameters", f"{model.parameters / 1e9:.2f} billion"),
            ("memory in rollouts", _parts(found.rollout, gpu)),
            ("memory in the update", _parts(found.update, gpu)),
            ("keys and values", f"{found.kv / GIB:.0f} GiB: {found.kv / model.kv_bytes:,.0f} tokens per engine"),
            ("host memory", f"{found.host / GB:.0f} GB of weights and optimizer, and the processes' own"),
            ("largest tensor", f"{largest >> 20:,} MiB in buckets of {bucket >> 20:,}{alone}"),
            ("seconds of a step", f"{each[0]:.0f}: " + ", ".join(f"{name} {s:.0f}" for name, s in stages.items())),
            ("steps", str(steps)),
            ("validations, saves", f"{validations} of {each[1]:.0f} s, {saves} of {each[2]:.0f} s"),
            ("hours", f"{hours:.1f}, {hours * step.devices:.0f} GPU hours{cost}"),
        ]


def table(lines: Lines, title: str) -> Table:
    """The lines for the console."""
    shown = Table(box=None, show_header=False, title=title, title_justify="left")
    for what, amount in lines:
        shown.add_row(what, amount)
    return shown


def _times(steps: int, interval: int) -> int:
    """The number of events at an interval and at the end."""
    return -(-steps // interval) if interval > 0 else 0


def _parts(parts: Mapping[str, float], gpu: Gpu) -> str:
    names = ", ".join(f"{name} {size / GIB:.0f}" for name, size in parts.items())
    return f"{sum(parts.values()) / GIB:.0f} of {gpu.memory / GIB:.0f} GiB: {names}"


def _budgets(plan: StepPlan) -> Lines:
    """The parts of a step that follow from the recipe's settings only."""
    size = f"{plan.packed:,} tokens: at most" if plan.packed else f"{plan.rows_per_micro_batch} rows:"
    waiting = "" if plan.in_flight == plan.rows else f" of {plan.rows}"
    per_engine = f"{-(-plan.in_flight // plan.engines)} per engine, which runs {plan.engine_slots} at a time"
    is_cut = plan.packed is not None and plan.longest == plan.packed < min(plan.prompt + plan.response, plan.model)
    cut = " (cut there by actor_rollout_ref.actor.ppo_max_token_len_per_gpu)" if is_cut else ""
    return [
        ("trajectories", f"{plan.prompts} prompts x {plan.samples} samples = {plan.rows}"),
        ("devices", f"{plan.devices}: {plan.ranks} data-parallel ranks, {plan.engines} rollout engines"),
        ("in flight", f"{plan.in_flight}{waiting}, {per_engine}"),
        ("mini-batches", f"{plan.mini_batches} of {plan.rows // plan.mini_batches} trajectories"),
        ("optimizer steps", f"{plan.optimizer_steps}"),
        ("rows per rank", f"{plan.rows_per_rank * plan.mini_batches}, {plan.rows_per_rank} of each mini-batch"),
        ("micro-batches", f"of {size} {plan.most_micro_batches} on each rank"),
        ("tokens of a first prompt", f"{plan.prompt:,}"),
        ("tokens of a message", f"{plan.message:,}"),
        ("tokens after the prompt", f"{plan.response:,}"),
        ("tokens of the engine", f"{plan.model:,}"),
        ("tokens of a training row", f"{plan.longest:,}{cut}"),
    ]
