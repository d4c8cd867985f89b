"""Make a policy: corpus, tokenizer, network, warm start, folder, record."""

import platform
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from env_service.environments.bfcl import catalog
from seal.files import file_sha256, write_json
from seal.policy.corpus import CorpusSettings, build_corpus, digest, tokenizer_texts, training_tasks, vocabulary
from seal.policy.dialogue import PROMPT_MODE, tool_names
from seal.policy.model import SIZES, new_model
from seal.policy.tokenizer import END, PAD, DialogueEncoder, train_tokenizer
from seal.policy.warm_start import Step, WarmStartSettings, warm_start

RECORD = "made.json"
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "bfcl-eval")


@dataclass(frozen=True)
class Plan:
    """Everything that decides the outcome; two runs of one plan on one machine give the same files.

    seed: of everything random. size: a key of SIZES. vocab_size: tokens. context:
    longest dialogue in tokens; longer ones (a few of long_context) are left out.
    """

    seed: int = 0
    size: str = "small"
    vocab_size: int = 2048
    context: int = 2048
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
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
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    columns = ("{task.description:<12}", BarColumn(), MofNCompleteColumn(), *times, "{task.fields[note]}")
    steps: list[Step] = []
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("dialogues", total=len(tasks), note="")
        groups = build_corpus(plan.corpus, plan.seed, on_task=lambda task: progress.advance(bar))
        dialogues = sum(map(len, groups))
        words = vocabulary(tasks)
        tokenizer = train_tokenizer(tokenizer_texts(groups, words), tool_names(), plan.vocab_size, plan.context)
        encoder = DialogueEncoder(tokenizer)
        encoded = [[encoder.encode(dialogue.messages, dialogue.slips) for dialogue in group] for group in groups]
        kept = [[dialogue for dialogue in group if len(dialogue.ids) <= plan.context] for group in encoded]
        kept = list(filter(None, kept))
        lengths = [len(dialogue.ids) for group in kept for dialogue in group]
        if not kept:
            raise ValueError(f"Every dialogue is longer than the context of {plan.context} tokens: raise --context.")
        note = f"{len(lengths)} of {dialogues} dialogues fit the context, {mean(lengths):.0f} tokens each"
        progress.update(bar, note=note)

        model = new_model(
            SIZES[plan.size],
            vocab_size=plan.vocab_size,
            context=plan.context,
            end_id=tokenizer.convert_tokens_to_ids(END),
            pad_id=tokenizer.convert_tokens_to_ids(PAD),
            seed=plan.seed,
        ).to(device)
        bar = progress.add_task("warm start", total=plan.training.tokens, note="")

        def on_step(step: Step) -> None:
            steps.append(step)
            note = f"loss {mean(past.loss for past in steps[-10:]):.3f}"
            progress.update(bar, completed=min(step.tokens, plan.training.tokens), note=note)

        warm_start(model, kept, plan.training, plan.seed, on_step)

    out.mkdir(parents=True, exist_ok=True)
    model.to("cpu").save_pretrained(out)
    tokenizer.save_pretrained(out)
    record = {
        "command": " ".join(command),
        "plan": asdict(plan),
        "prompt_mode": PROMPT_MODE,
        "parameters": model.num_parameters(),
        "dialogues": dialogues,
        "dialogues_by_category": Counter(dialogue.category for group in groups for dialogue in group),
        "dialogues_that_fit": len(lengths),
        "mean_tokens": round(mean(lengths), 1),
        "longest": max(lengths),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "benchmark_data": catalog.data_hash(),
        "corpus_sha256": digest(groups),
        "files_sha256": {name: file_sha256(out / name) for name in ("model.safetensors", "tokenizer.json")},
        "device": device,
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - cpu_started, 1),
        "log": [
            {"step": step.step, "tokens": step.tokens, "loss": round(step.loss, 4), "seconds": round(step.seconds, 1)}
            for step in steps
            if step.step % 10 == 0 or step is steps[-1]
        ],
    }
    write_json(record, out / RECORD)
    return record
