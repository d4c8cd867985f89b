"""Does a hint help that holds the content of a diagnosis? `python -m benchmarks.reminders RECIPE FOLDER [KEY=VALUE]...`

A reminder is one sentence behind the user's message of the turn that a failed plain rollout of the same prompt broke:
what the verifier saw there, made of the policy's own call and public documents. benchmarks/reminders.md says what is
compared. FOLDER gets the policy after its lessons, reminders.json, rollouts.csv.gz, and the comparisons.
"""

import asyncio
import csv
import gzip
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.task_file import write_task_file
from env_service.environments.registry import get_environment
from seal.cli.train import console
from seal.launch.recipe import Recipe, read_recipe
from seal.method.interface.cues import Omega
from seal.method.interface.evolve import cues_in_use
from seal.method.interface.guard import LeakGuard
from seal.method.interface.schema_cue import required_entry
from seal.method.labels import EXCLUDED, get
from seal.records.trajectory import TrajectoryRecord
from seal.rollout import agent_loop
from seal.rollout.episode import Episode, Observation
from seal.rollout.lesson import _failed
from seal.rollout.services import addresses
from seal.system.files import write_json
from seal.system.text import clipped
from shelf.lab.probe.measure import Rollouts, _by_task, seen_labels
from shelf.lab.probe.rollouts import NAME, Job, play
from shelf.statistics.intervals import paired_difference
from shelf.suites.bar import Bar
from shelf.suites.bfcl.serving import environment_service, served_checkpoint
from shelf.testbed.policy.adapt import _drawn_cues
from shelf.testbed.policy.chat import encode
from shelf.testbed.policy.dialogue import reference_dialogue
from shelf.testbed.policy.warm_start import WarmStartSettings, warm_start
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from shelf.testbed.synthesis.sampler import SamplerSettings

START = "data/quickstart_policy"
LESSON_TASKS, LESSON_SAMPLES, SEED, TOKENS = 300, 4, 63, 300_000
LONGEST = 160
"""Characters of a sentence's content."""
NONE, OWN, SAME, OTHER, ALL = "none", "own", "same label", "other label", "all cues"
COMPARED = ((OWN, SAME), (OWN, OTHER), (OWN, ALL), (OWN, NONE), (ALL, NONE), (SAME, NONE), (OTHER, NONE))
"""The first four decide."""
COLUMNS = ("arm", "task", "scenario", "sample", "passed", "told", "differs")


class Reminder(NamedTuple):
    """A sentence for one user turn. content: its variable part, which the leak guard reads."""

    turn: int
    label: str
    text: str
    content: str


def reminder(record: TrajectoryRecord, documents: Mapping[str, Mapping[str, Any]]) -> Reminder | None:
    """What the verifier saw in the first turn that a rollout failed; None if a budget or infrastructure ended it."""
    turns = {turn["turn"]: turn for turn in record.evidence}
    for found in record.diagnosis:
        if found["label"] in EXCLUDED:
            return None
        if not get(found["label"]).success:
            said = _sentence(found["label"], turns[found["turn"]], _messages(record, found["turn"]), documents)
            text, content = said if isinstance(said, tuple) else (said, "")
            return Reminder(found["turn"], found["label"], text.replace("{}", content), content)
    return None


def _messages(record: TrajectoryRecord, turn: int) -> list[str]:
    """The policy's messages in a turn."""
    own = [message["content"] for message in record.messages if message["role"] == "assistant"]
    return [text for text, (number, *_) in zip(own, record.spans, strict=False) if number == turn]


def _sentence(
    label: str, turn: Mapping[str, Any], said: Sequence[str], documents: Mapping[str, Mapping[str, Any]]
) -> tuple[str, str] | str:
    calls = [call for action in turn["actions"] for call in action["calls"]]
    failed = [call for call in calls if _failed(call)]
    if label == "invalid_tool_call":
        for action, text in zip(turn["actions"], said, strict=False):
            if action["refusals"]:
                return "Last time this was no readable call: {}", clipped(text, LONGEST)
        return "Last time there was no such tool: {}", next(
            (call["name"] for call in calls if call["name"] not in documents), calls[0]["name"] if calls else ""
        )
    if label == "argument_mismatch":
        for call in calls:
            document = documents.get(call["name"])
            if document and any(each["kind"] == "missing" for each in call["violations"]):
                return "Last time arguments were missing. Required: {}", required_entry(document)
            if call["violations"]:
                return "Last time an argument was wrong. {}", clipped(call["violations"][0]["message"], LONGEST)
        return "Last time the arguments were refused: {}", _said(failed[-1:] or calls[-1:])
    if label == "recovery_failure":
        return "Last time this failed and nothing mended it: {}", _said(failed[-1:])
    if label == "spurious_tool_call":
        return "Last time this was called where nothing should be: {}", _said(calls[:1])
    if label == "missing_tool_call":
        return ("Last time only this was called: {}", _said(calls)) if calls else "Last time no tool was called."
    if label == "state_mismatch":
        changed = [call for call in calls if call["writes"] and not _failed(call)]
        return "Last time the state was wrong after: {}", _said(changed[-2:] or calls[-2:])
    return "Last time the result was not in: {}", _said(calls[-2:])


def _said(calls: Sequence[Mapping[str, Any]]) -> str:
    compact = partial(json.dumps, separators=(",", ":"), ensure_ascii=False)
    return clipped(" ".join(compact({"name": call["name"], "arguments": call["arguments"]}) for call in calls), LONGEST)


def by_turn(reminders: Sequence[Reminder]) -> tuple[Reminder, ...]:
    """For each turn the sentence that most failed rollouts of a prompt give, of equal ones the first."""
    counted: dict[int, Counter[Reminder]] = defaultdict(Counter)
    for each in reminders:
        counted[each.turn][each] += 1
    return tuple(counted[turn].most_common(1)[0][0] for turn in sorted(counted))


def controls(
    own: Mapping[int, Sequence[Reminder]], fired: Mapping[int, Collection[str]]
) -> tuple[dict[int, list[Reminder]], dict[int, list[Reminder]]]:
    """In each sentence's place another task's: of the same label, and of a label that did not fire in this task."""
    same, other = {}, {}
    for n, told in own.items():
        rng = random.Random(f"{SEED}/{n}")
        pool = [each for task in sorted(own) if task != n for each in own[task]]
        alike = [[each for each in pool if each.label == mine.label] for mine in told]
        strange = [each for each in pool if each.label not in fired[n]]
        if all(alike):
            same[n] = [rng.choice(some)._replace(turn=mine.turn) for mine, some in zip(told, alike, strict=True)]
        if strange:
            other[n] = [rng.choice(strange)._replace(turn=mine.turn) for mine in told]
    return same, other


# --- playing with reminders ------------------------------------------------------------

_SHOWN: dict[str, Mapping[int, str]] = {}
"""By task id: the sentences of the arm that is played, by turn."""


class Reminding(Episode):
    """An episode whose users' messages end with the reminders of the arm."""

    async def create(self) -> tuple[list[dict[str, str]], dict[str, Any]]:
        messages, info = await super().create()
        self._turn = 0
        return _with(messages, _SHOWN.get(self.task_id, {}).get(0)), info

    async def step(self, content: str, truncated: bool) -> Observation:
        seen = await super().step(content, truncated)
        if seen.done or seen.turn == self._turn:
            return seen
        self._turn = seen.turn
        return seen._replace(messages=tuple(_with(seen.messages, _SHOWN.get(self.task_id, {}).get(seen.turn))))


def _with(messages: Sequence[dict[str, str]], sentence: str | None) -> list[dict[str, str]]:
    *before, last = messages
    return [*before, {**last, "content": f"{last['content']}\n{sentence}"}] if sentence else [*messages]


@contextmanager
def playing(recipe: Recipe, model: Path, out: Path) -> Iterator[Any]:
    """Yield a function that plays jobs, with a bar's text and with reminders by task."""
    rollout, url = recipe.config.actor_rollout_ref.rollout, addresses(recipe.service.env_url)[0]
    limits = f"--max-model-len {rollout.max_model_len} --max-num-seqs {rollout.max_num_seqs}"
    with ExitStack() as stack:
        own = environment_service(url, out / "service.log", recipe.task_files, *recipe.environments)
        service = recipe.service.model_copy(update={"env_url": stack.enter_context(own)[0].url})
        recipe = replace(recipe, service=service)
        served = stack.enter_context(served_checkpoint(model, NAME, limits, out / "vllm.log"))
        bar = stack.enter_context(Bar(console()))

        def rollouts(what: str, jobs: Sequence[Job], told: Mapping[int, Sequence[Reminder]] | None = None) -> Rollouts:
            _SHOWN.clear()
            for n, some in (told or {}).items():
                _SHOWN[recipe.rows.train[n].task_id] = {each.turn: each.text for each in some}
            work = bar.add_task(what, total=len(jobs))
            return _by_task(asyncio.run(play(recipe, jobs, served, lambda: bar.update(work, advance=1))))

        yield rollouts


def failures(recipe: Recipe, plain: Rollouts) -> tuple[dict[int, list[Reminder]], int]:
    """The reminders of the usable failed rollouts by task, and the number that the leak guard kept back."""
    environment, found, leaks = get_environment("bfcl"), {}, 0
    for file in recipe.task_files:
        environment.load_task_file(file)
    wording = get_format(recipe.service.mode("bfcl")).cue_wording
    for n, rollouts in plain.items():
        task_id, some = recipe.rows.train[n].task_id, []
        documents = {document["name"]: document for document in environment.documents(task_id)}
        for record in (each.record for each in rollouts if each.record.usable and not each.record.passed):
            told = reminder(record, documents)
            guard = LeakGuard(environment.secrets(task_id), list(documents.values()), wording)
            guard.saw(*(message["content"] for message in record.messages))
            guard.saw_calls(
                (call["name"], call["arguments"])
                for turn in record.evidence
                for action in turn["actions"]
                for call in action["calls"]
            )
            if told is not None and guard.leaks("", told.content):
                leaks += 1
            elif told is not None:
                some.append(told)
        found[n] = some
    return found, leaks


# --- lessons ---------------------------------------------------------------------------


def teach(recipe_file: Path, changes: Sequence[str], out: Path) -> dict[str, Any]:
    """Write the policy after lessons on other tasks, half of whose dialogues show a failed rollout's reminder."""
    made = list(synthesise(Grammar(), LESSON_TASKS, SEED, "train", SamplerSettings(turns={1: 0.5, 2: 0.5})))
    known = {row.task_id for row in read_recipe(recipe_file, changes).rows.train}
    made = [task for task in made if task.id not in known]
    write_task_file(made, out / "lessons.jsonl")
    own = f"seal.data.train={{task_file: null, mixture: [{{tasks: {out.resolve() / 'lessons.jsonl'}}}]}}"
    recipe = read_recipe(recipe_file, [*changes, own])
    rows, tasks = recipe.rows.train, {task.id: task.task for task in made}
    jobs = [Job(n, sample) for n in range(len(rows)) for sample in range(LESSON_SAMPLES)]
    with playing(recipe, Path(START), out) as rollouts:
        plain = rollouts("rollouts of lessons' tasks", jobs)
    told, leaks = failures(recipe, plain)
    mode, rng = recipe.service.mode("bfcl"), random.Random(SEED)
    model = AutoModelForCausalLM.from_pretrained(START, dtype=torch.float32)
    tokenizer, groups, shown = AutoTokenizer.from_pretrained(START), [], 0
    for n, row in enumerate(rows):
        messages = reference_dialogue(tasks[row.task_id], mode)
        cued = reference_dialogue(tasks[row.task_id], mode, Omega.of(sorted(_drawn_cues(rng))))
        if messages is None or cued is None:
            continue
        drawn = rng.sample(told.get(n, []), min(2, len(told.get(n, []))))
        group = [encode(tokenizer, each) for each in (messages, cued, *(reminded(messages, each) for each in drawn))]
        fitting = [each for each in group if len(each.ids) <= model.config.max_position_embeddings]
        shown += len(fitting[2:])
        groups += [fitting] if fitting else []
    warm_start(model, groups, WarmStartSettings(TOKENS, muon_lr=0.002, adam_lr=0.001), SEED, lambda step: None)
    model.save_pretrained(out / "policy")
    tokenizer.save_pretrained(out / "policy")
    return {"tasks": len(groups), "reminded": shown, "kept back": leaks}


def reminded(messages: Sequence[Mapping[str, str]], told: Reminder) -> list[dict[str, str]]:
    """A dialogue with a reminder behind its turn's user message."""
    users = [
        n for n, each in enumerate(messages) if each["role"] == "user" and "<tool_response>" not in each["content"]
    ]
    place = users[told.turn]
    return [*messages[:place], *_with([dict(messages[place])], told.text), *messages[place + 1 :]]


# --- the gate --------------------------------------------------------------------------


def gate(recipe: Recipe, policy: Path, out: Path) -> dict[str, Any]:
    """Play the arms on the tasks that no plain rollout passed; write the rollouts and the reminders."""
    rows, count = recipe.rows.train, recipe.config.actor_rollout_ref.rollout.n
    everything = Omega.of(cue.name for cue in cues_in_use(recipe.settings.interface.evolve))
    with playing(recipe, policy, out) as rollouts:
        plain = rollouts("plain rollouts", [Job(n, sample) for n in range(len(rows)) for sample in range(count)])
        lost = {n: some for n, some in plain.items() if not any(each.record.passed for each in some)}
        told, leaks = failures(recipe, lost)
        own = {n: by_turn(some) for n, some in sorted(told.items()) if some}
        same, other = controls(own, seen_labels(lost))
        arms: list[tuple[str, Mapping[int, Sequence[Reminder]] | None]]
        arms = [(NONE, dict.fromkeys(own, ())), (OWN, own), (SAME, same), (OTHER, other), (ALL, None)]
        with gzip.open(out / "rollouts.csv.gz", "wt", encoding="utf-8", newline="") as file:
            write = csv.writer(file)
            write.writerow(COLUMNS)
            for arm, shown in arms:
                omega = everything if shown is None else None
                jobs = [Job(n, s, omega) for n in (shown or own) for s in range(count, 2 * count)]
                for n, some in sorted(rollouts(arm, jobs, shown).items()):
                    differs = int(n in same and [e.text for e in own[n]] != [e.text for e in same[n]])
                    labels = " ".join(each.label for each in own[n])
                    for job, record in (each[:2] for each in some if each.record.usable):
                        row = arm, record.task_id, record.scenario, job.sample, int(record.passed), labels, differs
                        write.writerow(row)
    texts = [
        {"task": rows[n].task_id} | {arm: [each._asdict() for each in some[n]] for arm, some in arms[1:4] if n in some}
        for n in own
    ]
    write_json(texts, out / "reminders.json")
    usable = [each.record for some in plain.values() for each in some if each.record.usable]
    return {"plain": 100 * fmean(e.passed for e in usable), "lost tasks": len(lost), "kept back": leaks}


def compare(rows: Sequence[Mapping[str, str]]) -> list[dict[str, float | str]]:
    """Differences in points, paired by task, with intervals that count scenarios.

    A task whose sentences are the same in both arms says nothing about their content: it is left out of own - same.
    """
    passed: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        passed[row["arm"]][row["task"]].append(int(row["passed"]))
    scenarios = {row["task"]: row["scenario"] for row in rows}
    differs = {row["task"] for row in rows if int(row["differs"])}
    found = []
    for arm, against in COMPARED:
        tasks = passed[arm].keys() & passed[against].keys()
        tasks &= differs if (arm, against) == (OWN, SAME) else tasks
        if not tasks:
            continue
        sides = ({task: fmean(passed[side][task]) for task in sorted(tasks)} for side in (against, arm))
        difference = paired_difference(*sides, scenarios, dict.fromkeys(tasks, ""))
        figures = {"arm": difference.mean_b, "against": difference.mean_a, "difference": difference.difference}
        figures |= {"low": difference.low, "high": difference.high}
        found.append({"what": f"{arm} - {against}", "tasks": len(tasks)} | {k: 100 * v for k, v in figures.items()})
    return found


def main(recipe_file: Path, out: Path, *changes: str) -> None:
    """Teach, play, write; with the rollouts there, only the comparisons."""
    out.mkdir(parents=True, exist_ok=True)
    path, facts = out / "rollouts.csv.gz", out / "facts.json"
    if not path.exists():
        agent_loop.Episode = Reminding
        lessons = teach(recipe_file, changes, out)
        recipe = read_recipe(recipe_file, [*changes, f"actor_rollout_ref.model.path={(out / 'policy').resolve()}"])
        write_json({"lessons": lessons, "gate": gate(recipe, out / "policy", out)}, facts)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = compare(rows)
    write_json(
        {"changes": changes, **json.loads(facts.read_text(encoding="utf-8")), "compared": found}, out / "gate.json"
    )
    for line in found:
        interval = "{difference:+5.1f} [{low:+.1f}, {high:+.1f}]".format(**line)
        console().print("  {what:<26}{tasks:>4} tasks {arm:5.1f} {against:5.1f}  ".format(**line) + interval)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]), *sys.argv[3:])
