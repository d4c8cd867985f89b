"""Make a policy: lessons, tokenizer, network, warm start, folder, record."""

import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from rich.console import Console

from env_service.environments.bfcl import catalog
from seal.system.files import file_sha256, write_json
from shelf.suites.bar import Bar
from shelf.testbed.policy.corpus import (
    CorpusSettings,
    build_corpus,
    digest,
    tokenizer_texts,
    training_tasks,
    vocabulary,
)
from shelf.testbed.policy.dialogue import PROMPT_MODE, Transcript, tool_names
from shelf.testbed.policy.lessons import LessonSettings, micro_lessons
from shelf.testbed.policy.model import SIZES, new_model
from shelf.testbed.policy.synthetic import Lessons, SyntheticSettings, synthetic_lessons
from shelf.testbed.policy.tokenizer import (
    BEFORE_ARGUMENTS,
    BETWEEN_ARGUMENTS,
    END,
    PAD,
    DialogueEncoder,
    Encoded,
    train_tokenizer,
)
from shelf.testbed.policy.warm_start import (
    BENCHMARK,
    LESSONS,
    MICRO,
    READING,
    Groups,
    Step,
    WarmStartSettings,
    warm_start,
)

RECORD = "made.json"
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "bfcl-eval")

_TOKENIZER_LESSONS = 3_000
_TOKENIZER_DIALOGUES = 4


@dataclass(frozen=True)
class Plan:
    """Everything that decides the outcome; two runs of one plan on one machine give the same files.

    seed: of everything random. size: a key of SIZES. vocab_size: tokens. context:
    longest dialogue in tokens; longer ones (a few of long_context) are left out.
    longest_lesson: the same for synthesised tasks.
    """

    seed: int = 0
    size: str = "small"
    vocab_size: int = 3072
    context: int = 2048
    longest_lesson: int = 800
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
    synthetic: SyntheticSettings = field(default_factory=SyntheticSettings)
    lessons: LessonSettings = field(default_factory=LessonSettings)
    training: WarmStartSettings = field(default_factory=WarmStartSettings)

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ValueError(f"There is no size {self.size!r}: choose one of {', '.join(SIZES)}.")


def make(plan: Plan, out: Path, command: Sequence[str], device: str, console: Console) -> dict[str, Any]:
    """Make the policy that the plan describes and write it as a Hugging Face folder.

    Returns the record that is also written to `made.json`: plan, command,
    versions, hashes, counts, losses, seconds. Raises ValueError if no dialogue
    fits the context.
    """
    torch.manual_seed(plan.seed)
    started, cpu_started = time.perf_counter(), time.process_time()
    tasks = training_tasks(plan.corpus)
    steps: list[Step] = []
    with Bar(console) as progress:
        bar = progress.add_task("benchmark", total=len(tasks))
        groups = build_corpus(plan.corpus, plan.lessons, plan.seed, lambda: progress.update(bar, advance=1))
        bar = progress.add_task("lessons", total=plan.synthetic.count)
        made = synthetic_lessons(plan.synthetic, plan.lessons, plan.seed, lambda: progress.update(bar, advance=1))
        words = vocabulary(tasks)
        sample = chain(made.whole[:_TOKENIZER_LESSONS], *(group[:_TOKENIZER_DIALOGUES] for group in groups))
        texts = tokenizer_texts((transcript.messages for transcript in sample), words)
        tokenizer = train_tokenizer(texts, tool_names(), plan.vocab_size, plan.context)
        sources = _encoded(groups, made, plan, DialogueEncoder(tokenizer))
        if not any(sources.values()):
            raise ValueError(f"Every dialogue is longer than the context of {plan.context} tokens: raise --context.")

        model = new_model(
            SIZES[plan.size],
            vocab_size=plan.vocab_size,
            context=plan.context,
            end_id=tokenizer.convert_tokens_to_ids(END),
            pad_id=tokenizer.convert_tokens_to_ids(PAD),
            seed=plan.seed,
        ).to(device)
        bar = progress.add_task("warm start", total=plan.training.tokens)

        def on_step(step: Step) -> None:
            steps.append(step)
            progress.update(bar, completed=min(step.tokens, plan.training.tokens))

        tools, joints = map(
            tokenizer.convert_tokens_to_ids, (list(tool_names()), [BEFORE_ARGUMENTS, *BETWEEN_ARGUMENTS])
        )
        warm_start(model, sources, plan.training, plan.seed, on_step, tools, joints)

    out.mkdir(parents=True, exist_ok=True)
    model.to("cpu").save_pretrained(out)
    tokenizer.save_pretrained(out)
    record = {
        "command": " ".join(command),
        "plan": asdict(plan),
        "prompt_mode": PROMPT_MODE,
        "parameters": model.num_parameters(),
        "dialogues": {name: sum(map(len, source)) for name, source in sources.items()},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "benchmark_data": catalog.data_hash(),
        "corpus_sha256": digest(chain(*groups, made.whole, made.reading)),
        "files_sha256": {name: file_sha256(out / name) for name in ("model.safetensors", "tokenizer.json")},
        "device": device,
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - cpu_started, 1),
        "log": _curve(steps),
    }
    write_json(record, out / RECORD)
    return record


def _encoded(
    groups: Sequence[Sequence[Transcript]], made: Lessons, plan: Plan, encoder: DialogueEncoder
) -> dict[str, Groups]:
    """The dialogues that fit, by source; a lesson counts by itself, the benchmark's by scenario."""

    def fitting(transcripts: Sequence[Transcript], longest: int) -> list[Encoded]:
        encoded = (encoder.encode(messages, slips) for messages, slips in transcripts)
        return [dialogue for dialogue in encoded if len(dialogue.ids) <= longest]

    short = [micro for transcript in made.whole for micro in micro_lessons(transcript)]
    return {
        MICRO: [[dialogue] for dialogue in fitting(short, plan.longest_lesson)],
        READING: [[dialogue] for dialogue in fitting(made.reading, plan.longest_lesson)],
        LESSONS: [[dialogue] for dialogue in fitting(made.whole, plan.longest_lesson)],
        BENCHMARK: list(filter(None, (fitting(group, plan.context) for group in groups))),
    }


def _curve(steps: Sequence[Step]) -> list[dict[str, float]]:
    """Loss on lessons over the training, a hundred points."""
    every = max(1, len(steps) // 100)
    points = (steps[end - every : end] for end in range(every, len(steps) + 1, every))
    losses = (([step.loss for step in part if step.source == LESSONS], part[-1]) for part in points)
    return [
        {"step": last.step, "tokens": last.tokens, "loss": round(mean(part), 4), "seconds": round(last.seconds, 1)}
        for part, last in losses
        if part
    ]
