"""The policy's training data: reference dialogues of training scenarios, and verified variants of them.

Nothing of an evaluation scenario enters: neither the tokenizer's text, nor the
words that fill variants, nor the dialogues.
"""

import ast
import hashlib
import inspect
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from env_service.environments.bfcl.catalog import CLASSES, Task, documents, load_tasks
from env_service.environments.bfcl.splits import TRAIN_SCENARIOS
from env_service.environments.bfcl.tools import simulator_class
from shelf.testbed.policy.dialogue import Transcript, parsed
from shelf.testbed.policy.lessons import LessonSettings, few_tools, lesson
from shelf.testbed.policy.renaming import CUED
from shelf.testbed.policy.variants import VariantMaker


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
        held_out = [number for number in self.scenarios if number not in TRAIN_SCENARIOS]
        if held_out:
            raise ValueError(f"Scenarios {held_out} belong to the evaluation side: leave them out of the corpus.")
        if not 0 <= self.first_turn_share <= 1:
            raise ValueError(f"first_turn_share must be between 0 and 1, got {self.first_turn_share}.")


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
    maker = VariantMaker(task, words, fixed_words(), rng)
    yield from filter(None, (maker.variant() for _ in range(variants)))


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
