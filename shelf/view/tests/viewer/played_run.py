"""A run's folder, as training leaves it behind, from real episodes: faulty runs played on the simulators with cues,
diagnosed, weighed by the closed loop and written by the trainer's own log."""

import itertools
import json
import random
import statistics
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from env_service.environments.bfcl.catalog import Task, load_tasks
from env_service.environments.bfcl.splits import task_ids
from env_service.environments.bfcl.tools import parse_reference
from seal.launch.recipe import read_recipe
from seal.records.trajectory import TrajectoryRecord
from seal.settings import SealSettings
from seal.system.paths import HOME
from seal.training.closed_loop import ClosedLoop, mark_groups, records_to_log
from seal.training.log import RunLog
from shelf.authoring.runs import open_episode
from shelf.authoring.tests.bfcl_faults import InjectedFault, faults

ROLLOUTS = 8


@cache
def settings() -> SealSettings:
    """Those of the main recipe, with cues that come early."""
    evolve = {"adaptive": "[schema,feedback,guideline]", "prevalence": 0.06, "min_count": 4}
    overrides = [f"seal.interface.evolve.{name}={value}" for name, value in evolve.items()]
    return SealSettings.of(read_recipe(HOME / "exp" / "SEAL.yaml", ["seal.diagnosis.window=3", *overrides]).config)


@cache
def tasks() -> tuple[Task, ...]:
    """Tasks of the training side, of every category."""
    return tuple(load_tasks()[name] for name in task_ids()["train"][::23])


def write_run(folder: Path, steps: int = 6, seed: int = 0, groups: int = 3, gain: float = 0.0) -> Path:
    """Write a run of `steps` steps with `groups` prompts each, and validations before and after.

    gain: how much the share of rollouts without a fault grows until the last step.
    """
    rng = random.Random(seed)
    (folder / "validation_log").mkdir(parents=True)
    log, loop = RunLog(folder), ClosedLoop(settings())
    for step in range(steps + 1):
        if step:
            log.stage("train", step=step, of=steps)
            play_step(log, loop, step, rng, groups, 0.35 + gain * step / steps)
        if step in (0, steps):
            log.stage("validate", step=step, of=5)
            log.validation(step, [*validated(rng), *withdrawal(loop, step)])
    return folder


def play_step(
    log: RunLog, loop: ClosedLoop, step: int, rng: random.Random, groups: int = 3, skill: float = 0.35
) -> None:
    """Play, weigh and log one training step; skill: the share of rollouts without a fault."""
    chosen = rng.sample(tasks(), groups)
    omega = loop.omega_to_send()
    records = [record for task in chosen for record in rollouts(task, rng, omega, skill)]
    records[0] = replace(
        records[0], infra="engine_timeout", infra_message="no answer <b>within</b> 600 s", score=0.0, labels=(),
        diagnosis=(), evidence=(), turns_passed=0,
    )  # fmt: skip
    standing = mark_groups([record.task_id for record in records], records)
    advantages = [a if group.trains else 0.0 for a, group in zip(_advantages(records), standing, strict=True)]
    weights, report = loop.step(step, records, standing)
    log.trajectories(step, records_to_log(records, standing, advantages, weights))
    seconds = {"step": 9.0 + rng.random(), "gen": 5.0, "old_log_prob": 1.0, "update_actor": 2.5}
    log.step(report.with_figures(seconds=seconds, seal_seconds=0.02, logp_diff_max=1e-6, logp_diff_mean=1e-7))


def rollouts(task: Task, rng: random.Random, omega: dict[str, Any] | None, skill: float) -> list[TrajectoryRecord]:
    """Eight rollouts of a task: some perfect, the others with a fault each."""
    found = list(faults(task, rng.randrange(1000)))
    chosen = [perfect(task) if rng.random() < skill else rng.choice(found) for _ in range(ROLLOUTS)]
    return [play(task, replace(fault, mode="compact"), sample, omega) for sample, fault in enumerate(chosen)]


def perfect(task: Task) -> InjectedFault:
    """A run without a fault: the reference."""
    return InjectedFault("none", 0, [[parse_reference(call) for call in calls] for calls in task.reference])


def play(
    task: Task, fault: InjectedFault, sample: int, omega: dict[str, Any] | None, split: str = "train"
) -> TrajectoryRecord:
    """Play a run as the agent loop does; split `eval` plays the plain benchmark."""
    params: dict[str, Any] = {"split": split, "tool_prompt_mode": fault.mode}
    if omega is not None:
        params |= {"omega": omega, "enforce_available_tools": True}
    episode = open_episode(task, params)
    messages, cuts = list(episode.start()["state"]), []
    for text, truncated in itertools.chain.from_iterable(fault.messages):
        answer = episode.step(text, truncated)
        messages += [{"role": "assistant", "content": text}, *answer["state"]]
        cuts.append(truncated)
        if answer["is_terminated"]:
            break
    evaluation = json.loads(json.dumps(episode.evaluate({}), default=asdict))
    return TrajectoryRecord.of(
        evaluation,
        task_id=task.id, data_source=task.category, category=task.category, split=split, sample=sample,
        score=float(evaluation["valid"]), stop="message_length" if cuts[-1] else "completed", tokens=40, seconds=1.5,
        omega_version=omega["version"] if omega else None, prompt_mode=fault.mode,
        truncated=tuple(number for number, cut in enumerate(cuts) if cut),
        messages=tuple({"role": each["role"], "content": each["content"]} for each in messages),
    )  # fmt: skip


def validated(rng: random.Random) -> list[TrajectoryRecord]:
    """One rollout per task, without an interface."""
    return [
        play(task, replace(rng.choice(list(faults(task, 0))), mode="compact"), 0, None, "eval") for task in tasks()[:12]
    ]


def withdrawal(loop: ClosedLoop, step: int) -> list[TrajectoryRecord]:
    """Tasks under Omega and in the plain interface, in which they fail more often."""
    rng, sent = random.Random(step), loop.omega_to_send()
    records = []
    for task in tasks()[::4]:
        for name, shown, chance in (("shown", sent, 0.8), ("hidden", None, 0.3)):
            fault = perfect(task) if rng.random() < chance else rng.choice(list(faults(task, step)))
            split = "eval" if name == "hidden" else "train"
            records.append(replace(play(task, replace(fault, mode="compact"), 0, shown, split), withdrawal=name))
    return records


def _advantages(records: list[TrajectoryRecord]) -> list[float]:
    found = []
    for record in records:
        scores = [each.score for each in records if each.task_id == record.task_id and each.usable]
        spread = statistics.pstdev(scores) if len(scores) > 1 else 0.0
        found.append((record.score - statistics.fmean(scores)) / spread if spread else 0.0)
    return found
