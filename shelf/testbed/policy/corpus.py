"""The policy's training data: reference dialogues of training scenarios, and verified variants of them.

Nothing of an evaluation scenario enters: neither the tokenizer's text, nor the
words that fill variants, nor the dialogues.
"""

import ast
import copy
import hashlib
import inspect
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from env_service.environments.bfcl.catalog import CLASSES, Task, documents, load_tasks
from env_service.environments.bfcl.splits import TRAIN_SCENARIOS, side_of_scenario
from env_service.environments.bfcl.tools import Toolbox, simulator_class
from seal.diagnosis.categories import CATEGORIES
from shelf.testbed.policy.dialogue import Transcript, parsed, reference_passes
from shelf.testbed.policy.lessons import LessonSettings, few_tools, lesson
from shelf.testbed.policy.renaming import CUED
from shelf.testbed.policy.variants import Responses, Script, VariantMaker
from shelf.testbed.synthesis.path import PathCall


@dataclass(frozen=True)
class CorpusSettings:
    """What to build.

    scenarios: training scenarios. variants: verified variants per task, by
    category; a category that is absent contributes nothing. first_turn_share: share
    of dialogues that end after the first user turn.
    """

    scenarios: tuple[int, ...] = TRAIN_SCENARIOS
    variants: Mapping[str, int] | tuple[tuple[str, int], ...] = (("base", 20), ("miss_func", 4), ("miss_param", 4))
    first_turn_share: float = 0.4

    def __post_init__(self) -> None:
        held_out = [number for number in self.scenarios if side_of_scenario(number) != "train"]
        if held_out:
            raise ValueError(f"Scenarios {held_out} belong to the evaluation side: leave them out of the corpus.")
        if not 0 <= self.first_turn_share <= 1:
            raise ValueError(f"first_turn_share must be between 0 and 1, got {self.first_turn_share}.")


def read_variants(text: str) -> tuple[tuple[str, int], ...]:
    """The variants per task that a text like ``base=25,miss_func=8`` names; ValueError for another text."""
    pairs = []
    for item in text.split(","):
        name, _, count = item.partition("=")
        if name not in CATEGORIES or not count.isdigit():
            raise ValueError(f"--variants: {item!r} is not CATEGORY=NUMBER with CATEGORY in {', '.join(CATEGORIES)}.")
        pairs.append((name, int(count)))
    return tuple(pairs)


def script_of(task: Task) -> Script:
    """The parts of a task that variants may change."""
    calls = tuple(tuple(map(PathCall.read, turn)) for turn in task.reference)
    return Script(task.users, task.initial_config, calls)


def with_script(task: Task, script: Script) -> Task:
    """The task with another script."""
    reference = tuple(tuple(map(str, turn)) for turn in script.calls)
    return replace(task, users=script.users, initial_config=script.config, reference=reference)


def run_reference(task: Task, script: Script) -> Responses:
    """Execute a script's calls in fresh simulators."""
    toolbox = Toolbox(replace(task, initial_config=script.config))
    # Two tools change the list that they receive: each call gets its own copy.
    return tuple(
        tuple(toolbox.call(call.name, copy.deepcopy(dict(call.arguments))).text for call in turn)
        for turn in script.calls
    )


@cache
def fixed_words() -> frozenset[str]:
    """Words that a variant must keep: literals in the simulators' source and values quoted in the documents."""
    words: set[str] = set()
    for name in CLASSES:
        source = inspect.getsource(inspect.getmodule(simulator_class(name)))
        words.update(
            node.value
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= 40
        )
        for document in documents(name):
            for parameter in document["parameters"]["properties"].values():
                words.update(map(str, parameter.get("enum", ())))
                description = parameter.get("description", "")
                words.update(re.findall(r"[`'\"]([A-Za-z_]+)[`'\"]", description))
                for listed in re.findall(r"\[Enum\]:?\s*(\[.*?\])", description):
                    words.update(re.findall(r"[A-Za-z_]+", listed))
    return frozenset(word.lower() for word in words)


def training_tasks(settings: CorpusSettings) -> tuple[Task, ...]:
    """The tasks of the corpus, scenario by scenario."""
    tasks = load_tasks()
    names = (f"multi_turn_{name}_{number}" for number in settings.scenarios for name in dict(settings.variants))
    return tuple(tasks[name] for name in names)


def vocabulary(tasks: Sequence[Task]) -> tuple[str, ...]:
    """Lower-case words for new values, from the tasks' user texts and configurations and the tools' documents."""
    texts = [
        "\n".join(user or "" for user in task.users) + json.dumps(dict(task.initial_config), default=str)
        for task in tasks
    ]
    texts += [json.dumps(documents(name)) for name in CLASSES]
    counts = Counter(word for text in texts for word in re.findall(r"(?<![A-Za-z_])[a-z]{3,10}(?![A-Za-z_])", text))
    return tuple(sorted(word for word, count in counts.items() if count >= 2))


def build_corpus(
    settings: CorpusSettings, how: LessonSettings, seed: int, on_task: Callable[[], None] = lambda: None
) -> tuple[tuple[Transcript, ...], ...]:
    """All dialogues, one group per scenario, deterministic from the seed; on_task is called after each task."""
    words = vocabulary(training_tasks(settings))
    groups: dict[int, list[Transcript]] = {}
    for task in training_tasks(settings):
        rng = random.Random(f"{seed}/{task.id}")
        group = groups.setdefault(task.scenario, [])
        for version in _versions(task, dict(settings.variants)[task.category], words, rng):
            if rng.random() < settings.first_turn_share:
                version = version.prefix(1)
            if any(call.split("(")[0] in CUED for calls in version.reference for call in calls):
                version = few_tools(version, rng)
            transcript = lesson(version, parsed(version.reference), how, rng)
            if transcript is not None:
                group.append(transcript)
        on_task()
    return tuple(tuple(group) for group in groups.values() if group)


def _versions(task: Task, variants: int, words: Sequence[str], rng: random.Random) -> Iterator[Task]:
    yield task
    maker = VariantMaker(
        script_of(task),
        run=lambda script: run_reference(task, script),
        verify=lambda script: reference_passes(with_script(task, script)),
        words=words,
        fixed=fixed_words(),
        rng=rng,
    )
    for _ in range(variants):
        script = maker.variant()
        if script is not None:
            yield with_script(task, script)


def tokenizer_texts(dialogues: Iterable[Sequence[Mapping[str, str]]], words: Sequence[str]) -> Iterator[str]:
    """The tokenizer's training text: the messages of dialogues, the tools' documents, the words."""
    for messages in dialogues:
        yield from (message["content"] for message in messages)
    for name in CLASSES:
        for document in documents(name):
            properties = document["parameters"]["properties"]
            yield " ".join(f"{name}: {parameter.get('type')}" for name, parameter in properties.items())
    yield " ".join(words)


def digest(transcripts: Iterable[Transcript]) -> str:
    """sha256 over dialogues, in order."""
    sha = hashlib.sha256()
    for messages, slips in transcripts:
        sha.update(json.dumps([slips, messages], sort_keys=True).encode())
    return sha.hexdigest()
