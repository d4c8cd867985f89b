"""A run's folder as a training run leaves it, in seconds: real episodes, the real loop and log, and no model.

The policy plays the references with drawn faults. Tokens are counted as a quarter of
the characters, so that budgets cut messages and dialogues as in a rollout.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from omegaconf import OmegaConf

from env_service.encoding import encode
from env_service.environments.base import Guard
from env_service.environments.bfcl.catalog import Task, data_hash, load_tasks, package_version
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.task_file import read_task_file
from env_service.environments.bfcl.tools import parse_reference
from seal import __version__
from seal.data.rows import TaskRow
from seal.data.selection import selected_rows
from seal.launch.recipe import read_recipe
from seal.method.interface.cues import Omega
from seal.method.teacher import omega_for, sees_omega, teacher_of
from seal.records.folder import RunFolder
from seal.records.method import method_digest
from seal.records.trajectory import CUTS, TrajectoryRecord
from seal.rollout.budgets import Budgets
from seal.rollout.rewards import terminal_reward
from seal.rollout.siblings import broken_tools
from seal.settings import SealSettings
from seal.settings.reward import RewardSettings
from seal.system.files import file_sha256
from seal.system.paths import HOME
from seal.system.text import without_secrets
from seal.training.closed_loop import ClosedLoop, mark_groups, records_to_log
from seal.training.log import RunLog
from shelf.lab.advantages import group_advantages

ENVIRONMENT = BfclEnvironment()

SMALL = (
    "data.train_batch_size=2",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.rollout.n=3",
    "seal.data.train={split: train, categories: [base, miss_func], prefix_turns: [2], limit: 6}",
    "seal.data.train.task_file=null",
    "seal.data.train.mixture=[]",
    "seal.data.withdrawal=null",
    "actor_rollout_ref.rollout.val_kwargs={n: 1, temperature: 0.0, do_sample: false}",
    "seal.data.val=[{split: train, categories: [miss_param], limit: 1}, {split: train, prefix_turns: [1], limit: 1}]",
    "data.max_response_length=1024",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048",
    "actor_rollout_ref.rollout.max_model_len=2048",
)
"""Steps of six trajectories, which fit into a few dozen kilobytes."""


@cache
def configuration(*overrides: str) -> dict[str, Any]:
    config = read_recipe(HOME / "exp" / "quickstart.yaml", list(overrides)).config
    return without_secrets(OmegaConf.to_container(config, resolve=True))


class LateCalls(Guard):
    """Lets a share of the calls exceed their limit."""

    def __init__(self, rng: random.Random, share: float):
        self._rng, self._share = rng, share

    def run(self, call, refused):
        return refused("the call exceeded 5 s") if self._rng.random() < self._share else call()


def said(task: Task, mode: str, rng: random.Random) -> list[str]:
    """Return the messages of a policy that makes mistakes, until the task's end or until it gives up."""
    formatter = get_format(mode)
    texts: list[str] = []
    for calls in task.reference:
        for call in calls:
            name, arguments = parse_reference(call)
            fault = rng.random()
            if fault < 0.06:
                continue  # a call is skipped
            if fault < 0.12 and arguments:
                arguments = {**arguments, rng.choice(list(arguments)): rng.choice(["x", 3, None, [1.5, {"a": True}]])}
            if fault < 0.15:
                name = "fly"
            text = formatter.render_call(name, arguments)
            texts.append(text[:-9] if 0.15 < fault < 0.19 else text)
            if fault > 0.97:
                texts += [text] * 4
        texts.append(rng.choice(["Done.", "I cannot do that.", "Fertig: é\u2028.", "word " * 200]))
        if rng.random() < 0.05:
            texts.append(formatter.render_call("ls", {}))
    return texts


@dataclass
class Player:
    """Plays trajectories of one launch."""

    config: dict[str, Any]
    seed: int = 0
    late: float = 0.0
    lost: float = 0.0

    def __post_init__(self):
        self.settings = SealSettings.of(self.config)
        self.budgets = Budgets.of(self.config)
        self.mode = self.config["env_service"]["prompt_mode"]
        self.made = {}
        for file in self.settings.data.task_files():
            ENVIRONMENT.load_task_file(file)
            self.made |= {made.id: made.task for made in read_task_file(file)}

    def play(
        self, row: TaskRow, sample: int, step: int, omega: Any, training: bool, told: Sequence[str] | None = None
    ) -> TrajectoryRecord:
        """A rollout. told: what is said in place of a policy's messages, and nothing after it."""
        rng = random.Random(f"{self.seed}/{step}/{row.data_source}/{row.task_id}/{sample}/{training}")
        params: dict[str, Any] = {"split": row.split if training else "eval", "tool_prompt_mode": self.mode}
        if row.turns > 0:
            params["turns"] = row.turns
        if training:
            params["enforce_available_tools"] = True
            if omega is not None:
                params["omega"] = omega
        episode = ENVIRONMENT.open(row.task_id, params, LateCalls(rng, self.late))
        opening = episode.start()
        messages = _kept(opening["state"])
        prompt = total = sum(map(_tokens, messages))
        task = load_tasks().get(row.task_id) or self.made[row.task_id]
        task = task.prefix(row.turns) if row.turns > 0 else task
        spans, truncated, turn, stop, texts = [], [], 0, "", told or said(task, self.mode, rng)
        lost_at = rng.randrange(3) if told is None and training and rng.random() < self.lost else None
        while not stop:
            number = len(spans)
            limit, room = self.budgets.room(total - prompt, total, training)
            if room < 1 or (training and number >= self.budgets.max_steps):
                stop = limit if room < 1 else "max_steps"
                break
            if number == lost_at:
                break
            if told is not None and number == len(told):
                stop = "completed"
                break
            text = texts[number] if number < len(texts) else "Done."
            size = _tokens({"content": text}) + 1
            cut = size > room
            content, size = (text[: room * 4], room) if cut else (text, size)
            answer = episode.step(content, cut)
            truncated += [number] if cut else []
            spans.append((turn, total - prompt, total - prompt + size))
            messages += [{"role": "assistant", "content": content}, *_kept(answer["state"])]
            turn, total = answer["info"]["turn"], total + size
            if answer["is_terminated"]:
                stop = limit if cut else "completed"
                break
            total += cut + sum(map(_tokens, _kept(answer["state"])))
        evaluation = None
        if lost_at is None or stop:
            shown = {"stop": CUTS[stop]} if stop in CUTS else {}
            evaluation = orjson.loads(encode(episode.evaluate({"taxonomy": self.settings.diagnosis.taxonomy, **shown})))
            if evaluation["stop"] == "answered":
                stop = "completed"
            elif stop == "completed":
                stop = evaluation["stop"]
        cut = training and stop in CUTS
        reward = self.settings.reward if training else RewardSettings()
        return TrajectoryRecord.of(
            evaluation,
            task_id=row.task_id,
            data_source=row.data_source,
            category=row.category,
            split=row.split,
            sample=sample,
            score=terminal_reward(evaluation, reward, cut) if evaluation else 0.0,
            spans=tuple(spans) if evaluation else (),
            tokens=sum(end - start for _, start, end in spans),
            seconds=round(rng.random(), 3),
            stop=stop,
            excluded=cut and self.settings.reward.cut == "exclude",
            silent=cut and self.settings.reward.cut == "silent",
            infra=None if evaluation else "engine_timeout",
            infra_message="" if evaluation else "nothing came",
            omega_version=(opening["info"]["omega"] or {}).get("version"),
            prompt_mode=self.mode,
            data_hash=data_hash(),
            messages=tuple(messages),
            truncated=tuple(truncated),
            prompt_tokens=prompt,
            day=opening["info"]["day"],
            times=tuple((n * 1.0, n + 0.5, n + 0.6) for n in range(len(spans))),
        )


def _tokens(message: dict[str, str]) -> int:
    return len(message["content"]) // 4 + 1


def _kept(state: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    return [{"role": message["role"], "content": message["content"]} for message in state]


def mixture_of(file: Path) -> tuple[str, ...]:
    """Overrides for a run that trains on the benchmark and a file of synthesised tasks, and validates on both."""
    sources = f"mixture: [{{tasks: bfcl, weight: 1}}, {{tasks: {file}, weight: 2}}]"
    short = f"{{split: train, categories: [base], prefix_turns: [1], limit: 4, {sources}}}"
    return f"seal.data.train={short}", f"seal.data.val=[{short}]"


def write_run(
    folder: Path,
    *overrides: str,
    steps: int = 3,
    validations: Sequence[int] = (0,),
    seed: int = 0,
    late: float = 0.0,
    lost: float = 0.0,
    resumed: dict[int, tuple[str, ...]] | None = None,
) -> Path:
    """Write a run.

    resumed: the steps whose checkpoints it is continued from, with the overrides from
    there on. Each time it had come two steps further and was killed while it wrote.
    """
    every = min((step for step in validations if step), default=-1)
    asked = f"trainer.total_training_steps={steps}", f"trainer.test_freq={every}"
    overrides = (*asked, f"trainer.val_before_train={0 in validations}".lower(), *overrides)
    log, rng = RunLog(folder), random.Random(seed)
    player = Player(configuration(*overrides), seed, late, lost)
    loop = ClosedLoop(player.settings)
    train, val = _launched(log, player, 0)
    for step in range(steps + 1):
        if step - 1 in (resumed or {}):
            state = loop.state
            _lose(folder, step, player, loop, log, rng.sample(train, player.config["data"]["train_batch_size"]))
            log.keep_through(step - 1)
            player = Player(configuration(*overrides, *resumed[step - 1]), seed, late, lost)
            loop = ClosedLoop(player.settings)
            loop.restore(state)
            train, val = _launched(log, player, step - 1)
        if step:
            log.stage("train", step=step, of=steps)
            _train(step, player, loop, log, rng.sample(train, player.config["data"]["train_batch_size"]))
        if step in validations:
            log.stage("validate", step=step, of=len(val))
            samples = range(player.config["actor_rollout_ref"]["rollout"]["val_kwargs"]["n"])
            played = [player.play(row, sample, step, None, False) for row in val for sample in samples]
            log.validation(step, played)
    return folder


def _launched(log: RunLog, player: Player, step: int) -> tuple[Sequence[TaskRow], Sequence[TaskRow]]:
    """Log a launch that continues after `step`; its training and validation rows."""
    train = selected_rows(player.settings.data.train)
    val = [row for part in player.settings.data.val for row in selected_rows(part)]
    log.launch(_facts(player.config, train, val), step=step)
    return train, val


def _lose(folder: Path, step: int, player: Player, loop: ClosedLoop, log: RunLog, rows: Sequence[TaskRow]) -> None:
    """Play two steps that no checkpoint keeps; of the second the run has written only a part."""
    for lost in (step, step + 1):
        log.stage("train", step=lost, of=lost)
        _train(lost, player, loop, log, rows)
    log.stage("validate", step=lost, of=1)
    log.validation(lost, [player.play(rows[0], 0, lost, None, False)])
    steps = RunFolder(folder).steps
    steps.write_text(steps.read_text()[:-200])


def _train(step: int, player: Player, loop: ClosedLoop, log: RunLog, rows: Sequence[TaskRow]) -> None:
    samples, omega = player.config["actor_rollout_ref"]["rollout"]["n"], loop.omega_to_send()
    share = player.settings.interface.share
    records = []
    for row in rows:
        if player.settings.teaches:
            records += _taught(player, row, samples, step, Omega.from_json(omega))
        else:
            shown = (omega if sees_omega(sample, share) else None for sample in range(samples))
            records += [player.play(row, sample, step, each, True) for sample, each in enumerate(shown)]
    groups = mark_groups([f"prompt-{i // samples}" for i in range(len(records))], records)
    by_deviation = player.config["algorithm"]["norm_adv_by_std_in_grpo"]
    advantages = group_advantages(records, groups, by_deviation=by_deviation)
    weights, report = loop.step(step, records, groups)
    log.trajectories(step, records_to_log(records, groups, advantages, weights))
    log.step(report.with_figures(seconds={"step": 1.5}, seal_seconds=0.01, logp_diff_max=1e-6, logp_diff_mean=1e-7))


def _taught(player: Player, row: TaskRow, samples: int, step: int, omega: Omega) -> list[TrajectoryRecord]:
    """A prompt with a teacher: the plain rollouts, then those that they call for, each with its lesson."""
    interface, settings = player.settings.interface, player.settings
    plain = {n: player.play(row, n, step, None, True) for n in range(samples) if not sees_omega(n, interface.share)}
    judged = [record for record in plain.values() if record.usable]
    passed = any(record.passed for record in judged)
    broken = None if passed else frozenset().union(*(broken_tools(record.evidence) for record in judged))
    records = []
    for sample in range(samples):
        if sample in plain:
            records.append(plain[sample])
            continue
        role = teacher_of(settings).role(sample, samples)
        shown = omega_for(role, omega, omega.for_category(row.category), interface.entries, broken)
        cues = shown.for_category(row.category) if shown else ()
        record = player.play(row, sample, step, shown.to_json() if shown else None, True)
        taught = False
        if cues and record.usable and record.passed and not record.truncated:
            told = [message["content"] for message in record.messages if message["role"] == "assistant"]
            taught = player.play(row, sample, step, None, True, told).passed
        silent = record.usable and (record.silent or (bool(cues) and not taught))
        records.append(
            replace(record, cues=cues, documents=(shown and shown.limit) or None, taught=taught, silent=silent)
        )
    return records


def _facts(config: dict[str, Any], train: Sequence[TaskRow], val: Sequence[TaskRow]) -> dict[str, Any]:
    rows = {"training": train, "validation": val}
    return {
        "seal": __version__,
        "commit": "0" * 40,
        "method": method_digest(),
        "untracked": [],
        "python": "3.11.7",
        "platform": "Linux",
        "hashes": {},
        "files": {name: file_sha256(HOME / name) for name in SealSettings.of(config).data.files()},
        "packages": {},
        "diff": "",
        "service": {"data_hash": data_hash(), "bfcl_eval": package_version()},
        "rows": {kind: [(row.data_source, row.task_id, row.split) for row in each] for kind, each in rows.items()},
        "config": config,
    }
