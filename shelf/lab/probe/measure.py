"""The benefit of cues for a policy: how often their failures occur, how much they lift, how much would transfer."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM

from seal.data.rows import TaskRow
from seal.launch.recipe import Recipe
from seal.method.diagnosis.rules import taxonomy_of
from seal.method.interface.cues import Omega
from seal.method.interface.evolve import cues_in_use
from seal.method.labels import SYNONYMS
from seal.records.trajectory import TrajectoryRecord
from seal.settings import SealSettings
from seal.training.closed_loop import ClosedLoop, mark_groups
from shelf.lab.advantages import group_advantages
from shelf.lab.probe.rollouts import DialogueTokens, Job, Played, Rollouts, by_task, plain_rollouts, playing
from shelf.statistics.intervals import paired_difference
from shelf.suites.bar import Bar

GRADIENTS = 24
"""The most successes with a cue whose gradients are computed: one of each task before a second of any task."""

Gradient = list[torch.Tensor]
Weighed = tuple[DialogueTokens, float, float, int]
"""A rollout of a batch: its advantage, its weight, and 0 or 1 for the half of its prompt's samples."""
Transfer = Callable[[DialogueTokens, DialogueTokens], float]


class Question(NamedTuple):
    """A question about a cue. rate: the share of plain rollouts with its failure. shown: by task, the Omega with it."""

    cue: str
    label: str
    rate: float
    shown: Mapping[int, Omega]


Answers = Sequence[tuple[Question, Rollouts]]


def questions(settings: SealSettings, tasks: Sequence[TaskRow], plain: Rollouts) -> Iterator[Question]:
    """One for each cue that the recipe uses, by label."""
    counted = {task: [each.record for each in rollouts if each.record.usable] for task, rollouts in plain.items()}
    found, failed = {task: [_named(each) for each in some] for task, some in counted.items()}, seen_labels(plain)
    cues = sorted(
        cues_in_use(settings.interface.evolve, taxonomy_of(settings.diagnosis.taxonomy)), key=lambda cue: cue.label
    )
    for cue in cues:
        rate = fmean(cue.label in labels for some in found.values() for labels in some)
        yield Question(cue.name, cue.label, rate, {n: Omega.of([cue.name]) for n in plain if cue.label in failed[n]})


def seen_labels(plain: Rollouts) -> dict[int, set[str]]:
    """By task, the labels of all its usable rollouts."""
    return {n: set().union(*(_named(e.record) for e in some if e.record.usable)) for n, some in plain.items()}


def _named(record: TrajectoryRecord) -> set[str]:
    return {SYNONYMS.get(label, label) for label in record.signals}


def gain(
    asked: Question, tasks: Sequence[TaskRow], plain: Rollouts, cued: Rollouts, transfer: Transfer
) -> dict[str, Any]:
    """The benefit of a cue, with shares from 0 to 1, and None if nothing was seen or there is no lift to hand on.

    plain, cued: rollouts with common seeds. In the answer, tasks: the share of tasks on which the cue was tried; plain:
    their pass rate without it; replayed: of the passes with the cue, the share that also passes in a plain episode;
    transfer: see `Policy`; a task's successes are weighted by its lift, because those of a task that passes without the
    cue transfer well but have nothing to hand on; taught: the points of all tasks' pass rate that a teacher, whose
    target is the plain prompt, can hand on; cued: the same for steps under the prompt with the cue.
    """
    row = {"cue": asked.cue, "label": asked.label, "rate": asked.rate, "tasks": len(asked.shown) / len(tasks)}
    row |= dict.fromkeys(("plain", "lift", "low", "high", "replayed", "transfer", "cued", "taught"))
    before, after = ({n: _rate(side[n]) for n in asked.shown if _rate(side[n]) is not None} for side in (plain, cued))
    if before.keys() & after.keys():
        scenarios = {n: (tasks[n].environment, tasks[n].scenario) for n in asked.shown}
        found = paired_difference(before, after, scenarios, dict.fromkeys(scenarios, ""))
        row |= {"plain": found.mean_a, "lift": found.difference, "low": found.low, "high": found.high}
    every = sorted((each for n in asked.shown for each in cued[n]), key=lambda each: each.job.sample)
    passed = [each for each in every if each.record.usable and each.record.passed]
    said = [each for each in passed if each.lesson is not None]
    lifts = {n: max(0.0, after[n] - before[n]) for n in before.keys() & after.keys()}
    lifted = [each for each in said if lifts.get(each.job.task)][:GRADIENTS]
    if lifted and row["lift"] > 0:
        moved = fmean(
            (transfer(each.tokens, each.lesson) for each in lifted), [lifts[each.job.task] for each in lifted]
        )
        taught = row["tasks"] * row["lift"] * len(said) / len(passed)
        row |= {"replayed": len(said) / len(passed), "transfer": moved, "cued": taught * moved, "taught": taught}
    return row


def _rate(rollouts: Sequence[Played]) -> float | None:
    counted = [each.record.passed for each in rollouts if each.record.usable]
    return fmean(counted) if counted else None


def lines(gains: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The table, 80 columns wide, in percent and points."""
    label = None
    for row in gains:
        if row["label"] != label:
            label = row["label"]
            yield f"\n{label}: in {row['rate']:.0%} of plain rollouts, in {row['tasks']:.0%} of tasks"
            yield f"{'  cue':<18}{'plain':>6}{'lift [95 %]':>23}{'replayed':>10}{'transfer':>9}{'cued':>7}{'taught':>7}"
        lift, low, high, cued, taught = (_points(row[name]) for name in ("lift", "low", "high", "cued", "taught"))
        plain, replayed = ("-" if row[name] is None else f"{row[name]:.0%}" for name in ("plain", "replayed"))
        transfer, lift = "-" if row["transfer"] is None else f"{row['transfer']:.2f}", f"{lift} [{low}, {high}]"
        yield f"  {row['cue']:<16}{plain:>6}{lift:>23}{replayed:>10}{transfer:>9}{cued:>7}{taught:>7}"


def _points(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:+.1f}"


def findings(
    recipe: Recipe, bar: Bar, plain: Rollouts, control: Rollouts, answers: Answers
) -> tuple[dict[str, Any], list[str]]:
    """Return the figures of `played` rollouts as JSON values, and as lines of 80 columns."""
    policy = Policy(recipe.config.actor_rollout_ref.model.path, recipe.config.actor_rollout_ref.rollout.temperature)
    asked = bar.track(answers, description="gradients of cued successes")
    gains = [gain(question, recipe.rows.train, control, cued, policy.transfer) for question, cued in asked]
    batches = bar.track(list(_batches(recipe, plain)), description="gradients of batches")
    angles = [found for found in map(policy.angles, batches) if math.isfinite(sum(found))]
    every = [e.record for part in (plain, control, *(c for _, c in answers)) for some in part.values() for e in some]
    lost = sum(each.infra is not None for each in every)
    weights = [median(each) for each in zip(*angles, strict=True)]
    said = [*lines(gains), f"\n{len(every)} rollouts, of which infrastructure lost {lost}"]
    if weights:
        said.append("weights: cos(A, wA) {:.3f}; halves of a batch agree by {:.2f}, with w by {:.2f}".format(*weights))
    named = dict(zip(("w", "halves", "halves_with_w"), weights, strict=False))
    return {"rollouts": len(every), "lost": lost, "gains": gains, "weights": named}, said


def play_tasks(recipe: Recipe, out: Path, bar: Bar) -> tuple[Rollouts, Rollouts, Answers]:
    """Plain rollouts of all tasks; new ones of the tasks on which cues are tried; by question, those with its cue.

    LaunchError or ValueError for errors that a user can fix.
    """
    n = recipe.config.actor_rollout_ref.rollout.n
    later = range(n, 2 * n)
    with playing(recipe, out, bar) as rollouts:
        plain = by_task(plain_rollouts(recipe, rollouts))
        asked = list(questions(recipe.settings, recipe.rows.train, plain))
        control = [Job(task, sample) for task in sorted(set().union(*(q.shown for q in asked))) for sample in later]
        cued = [[Job(task, sample, each.shown[task]) for task in each.shown for sample in later] for each in asked]
        rest = iter(rollouts("rollouts with cues", [*control, *(job for jobs in cued for job in jobs)]))
    parts = [by_task([next(rest) for _ in jobs]) for jobs in (control, *cued)]
    return plain, parts[0], list(zip(asked, parts[1:], strict=True))


def _batches(recipe: Recipe, plain: Rollouts) -> Iterator[list[Weighed]]:
    """Plain rollouts in batches of the recipe's size, as the first steps of a run would weigh them."""
    loop, count = ClosedLoop(recipe.settings), max(1, len(plain) // recipe.config.data.train_batch_size)
    for number in range(count):
        rows = [each for task in sorted(plain)[number::count] for each in plain[task]]
        records = [each.record for each in rows]
        groups = mark_groups([str(each.job.task) for each in rows], records)
        advantages = group_advantages(records, groups, by_deviation=recipe.config.algorithm.norm_adv_by_std_in_grpo)
        weights, _ = loop.step(number + 1, records, groups)
        weighed = zip(rows, advantages, weights, groups, strict=True)
        yield [(each.tokens, a, w, each.job.sample % 2) for each, a, w, group in weighed if group.trains]


class Policy:
    """The model as the trainer loads it, in float32 on a CPU and in bfloat16 on a GPU."""

    def __init__(self, model: str, temperature: float):
        self._device, kind = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=kind).to(self._device).eval()
        self._temperature = temperature

    def gradient(self, tokens: DialogueTokens) -> Gradient:
        """The gradient of the log-prob, in nats, of all the policy's own tokens; one tensor per parameter."""
        ids, own = (torch.tensor(each, device=self._device) for each in tokens)
        self._model.zero_grad()
        logits = self._model(ids[None], logits_to_keep=own - 1).logits[0].float() / self._temperature
        logits.log_softmax(-1).gather(1, ids[own, None]).sum().backward()
        return [each.grad for each in self._model.parameters()]

    def transfer(self, seen: DialogueTokens, plain: DialogueTokens) -> float:
        """Return the change in the log-prob of `plain` by a step on `seen`, relative to that by a step on `plain`."""
        first = [each.clone() for each in self.gradient(seen)]
        own = self.gradient(plain)
        return _dot(first, own) / _dot(own, own)

    def angles(self, batch: Iterable[Weighed]) -> tuple[float, float, float]:
        """Cosines of a batch's gradients: A and w A; its two halves; the halves with w. nan if one of them is 0."""
        sums = [[torch.zeros_like(each) for each in self._model.parameters()] for _ in range(4)]
        for tokens, advantage, w, half in batch:
            own = self.gradient(tokens) if advantage else []
            for total, factor in ((sums[half], advantage), (sums[2 + half], w * advantage)):
                for part, more in zip(total, own, strict=False):
                    part.add_(more, alpha=factor)
        a, b, c, d = sums
        whole, weighed = ([one + other for one, other in zip(*pair, strict=True)] for pair in ((a, b), (c, d)))
        return _cosine(whole, weighed), _cosine(a, b), _cosine(c, d)


def _dot(a: Gradient, b: Gradient) -> float:
    return sum(torch.sum(one.float() * other.float()).item() for one, other in zip(a, b, strict=True))


def _cosine(a: Gradient, b: Gradient) -> float:
    scale = math.sqrt(_dot(a, a) * _dot(b, b))
    return _dot(a, b) / scale if scale else math.nan
