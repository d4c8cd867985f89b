"""Lessons for a pretrained model: synthesised tasks in its own chat template, with the tools' whole documents.

A small pretrained model knows JSON and English, but hardly any tool calls. A few hundred dialogues teach it: every
weight is trained, and only what the assistant says has a loss. Documents are most of a dialogue, so everything before
the first call goes through the model without a gradient.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from statistics import mean
from typing import Literal, NamedTuple

import psutil
import torch
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from shelf.suites.folder import written_whole
from shelf.suites.serving import require_model
from shelf.testbed.policy.dialogue import drawn_omega, drawn_slip, reference_dialogue
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from shelf.testbed.synthesis.sampler import short

PROBED = 24
"""The number of tasks used to judge a model."""
TRIED = 200
"""The most tasks in a row without a lesson that fits."""
BYTES = 16
"""Bytes of memory per trained parameter in fp32: the weight, its gradient, and the two means of Adam."""


@dataclass(frozen=True)
class ChatSettings:
    """Settings of the lessons.

    lessons, minutes: learning stops when the first of these is reached, and the learning rate falls to 0 by then.
    turns: weights of a lesson's number of requests. longest: the most tokens of a lesson. documents: the most
    characters of the tools' documents (3,000 are 700 to 900 tokens). dtype: that of matrix products. interface: half of
    the lessons show what training shows; in two fifths of these, the assistant errs once and corrects itself after
    feedback, and its error is not taught.
    """

    lessons: int = 1_000
    minutes: float = 60.0
    lr: float = 3e-4
    warmup: int = 10
    clip: float = 1.0
    seed: int = 0
    prompt_mode: str = "bfcl_qwen_fc"
    turns: tuple[tuple[int, float], ...] = ((1, 0.2), (2, 0.3), (4, 0.5))
    longest: int = 1_900
    documents: int = 3_000
    dtype: Literal["float32", "bfloat16"] = "float32"
    interface: bool = True


class Encoded(NamedTuple):
    """A dialogue as tokens; spoken[i] is true if the assistant says ids[i] and should learn to."""

    ids: tuple[int, ...]
    spoken: tuple[bool, ...]


class Plays(NamedTuple):
    """The share of dialogues that a model plays like their references, greedily, and its mean probability at T = 1.

    Other messages can pass too, so its pass rates are at least as high.
    """

    greedy: float
    sampled: float


class Taught(NamedTuple):
    """A finished lesson: its number from 0, the loss on the assistant's tokens (nats), seconds so far."""

    number: int
    loss: float
    seconds: float


def teach(source: Path, out: Path, settings: ChatSettings, on_step: Callable[[Taught], None]) -> tuple[Plays, Plays]:
    """Write the model of the folder `source`, after its lessons, to `out`, which must be empty or missing.

    Returns how it plays other tasks of one and two requests, before and after.
    ValueError, in one sentence, for a folder that is not a chat model, a chat template that changes earlier messages,
    or too little memory; then nothing is written.
    """
    require_chat_model(source)
    with written_whole(out) as draft:
        tokenizer = AutoTokenizer.from_pretrained(source)
        kept = AutoConfig.from_pretrained(source).dtype
        made = lessons(tokenizer, settings)
        first = next(made)  # a template that cannot be taught is refused before the weights are read
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
        others = replace(settings, seed=settings.seed + 1, turns=((1, 0.5), (2, 0.5)), interface=False)
        probed = [*islice(lessons(tokenizer, others), PROBED)]
        before = plays(model, probed)
        learn(model, islice(chain([first], made), settings.lessons), settings, on_step)
        after = plays(model, probed)
        model.to(kept or torch.float32).save_pretrained(draft)
        tokenizer.save_pretrained(draft)
    return before, after


def require_chat_model(source: Path) -> None:
    """ValueError unless a folder holds a model with a chat template that this machine's memory can train."""
    files = require_model(source).iterdir()
    weights = sum(file.stat().st_size for file in files if file.suffix in (".safetensors", ".bin"))
    tokenizer = AutoTokenizer.from_pretrained(source)
    if tokenizer.chat_template is None or tokenizer.eos_token is None:
        raise ValueError(f"{source} has no chat template, or no end token: name an instruction-tuned model.")
    size = (AutoConfig.from_pretrained(source).dtype or torch.float32).itemsize
    needed = weights // size * BYTES
    if (free := psutil.virtual_memory().available) < needed:
        raise ValueError(
            f"Training {source} takes {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free: end other "
            "programs, or name a smaller model."
        )


def lessons(tokenizer: PreTrainedTokenizerBase, settings: ChatSettings) -> Iterator[Encoded]:
    """Endless lessons of the level `train`, deterministic from the seed; ValueError if none of TRIED tasks fits."""
    sampler, mode = short(settings.documents, dict(settings.turns)), settings.prompt_mode
    rng, tried = random.Random(settings.seed), 0
    for made in synthesise(Grammar(), 10**9, settings.seed, "train", sampler):
        if tried == TRIED:
            raise ValueError(f"No lesson in {mode} fits {settings.longest} of the model's tokens: name another model.")
        tried += 1
        kind = rng.choice(("plain", "plain", "cued", "corrected")) if settings.interface else "plain"
        omega, slip = None, None
        if kind == "corrected" and any("=" in call for calls in made.reference for call in calls):
            slip = drawn_slip(made.task, mode, rng)
        if kind != "plain":
            omega = drawn_omega(slip and slip.label, rng)
        messages = reference_dialogue(made.task, mode, omega, slip)
        if messages is None:
            continue
        lesson = encode(tokenizer, messages, slip and slip.number)
        if len(lesson.ids) <= settings.longest:
            tried = 0
            yield lesson


def encode(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, str]], wrong: int | None = None
) -> Encoded:
    """A dialogue in the model's chat template, up to the assistant's last message.

    The pieces between the assistant's messages are encoded separately, as in a rollout. wrong: the number of the
    assistant's message that is not taught. ValueError if the template changes a message once others follow, because
    then a dialogue cannot be taught as it will be played.
    """
    ids: list[int] = []
    spoken: list[bool] = []
    before = ""
    own_places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    for number, position in enumerate(own_places):
        message = messages[position]
        asked = tokenizer.apply_chat_template(messages[:position], tokenize=False, add_generation_prompt=True)
        whole = tokenizer.apply_chat_template(messages[: position + 1], tokenize=False)
        end = whole.find(tokenizer.eos_token, len(asked))
        said = whole[len(asked) : end + len(tokenizer.eos_token)]
        if not asked.startswith(before) or not whole.startswith(asked) or not said.startswith(message["content"]):
            raise ValueError("The chat template changes earlier messages of a dialogue: name another model.")
        for text, own in ((asked[len(before) :], False), (said, number != wrong)):
            tokens = tokenizer.encode(text, add_special_tokens=False)
            ids += tokens
            spoken += [own] * len(tokens)
        before = asked + said
    return Encoded(tuple(ids), tuple(spoken))


def learn(
    model: PreTrainedModel, taught: Iterable[Encoded], settings: ChatSettings, on_step: Callable[[Taught], bool | None]
) -> None:
    """Train every weight of a model in fp32, in place, one lesson per step, until the end or on_step returns True."""
    adam = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    started = time.perf_counter()
    model.train()
    for number, lesson in enumerate(taught):
        spent = max(number / settings.lessons, (time.perf_counter() - started) / (60 * settings.minutes))
        if spent >= 1:
            break
        for group in adam.param_groups:
            group["lr"] = settings.lr * min(1.0, (number + 1) / settings.warmup) * (1 - spent)
        loss = lesson_loss(model, lesson, settings.dtype == "bfloat16")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        adam.step()
        adam.zero_grad()
        if on_step(Taught(number, loss.item(), time.perf_counter() - started)):
            break
    model.eval()


def lesson_loss(model: PreTrainedModel, lesson: Encoded, bfloat16: bool = False) -> torch.Tensor:
    """The mean loss on the assistant's tokens, in nats; everything before the first of them has no gradient."""
    ids, spoken = torch.tensor([lesson.ids]), torch.tensor(lesson.spoken)
    first = lesson.spoken.index(True) - 1
    targets = spoken[first + 1 :]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        before = model.model(input_ids=ids[:, :first], use_cache=True).past_key_values
    # A new context, because autocast remembers weights that it cast without a gradient.
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        hidden = model.model(input_ids=ids[:, first:-1], past_key_values=before, use_cache=True).last_hidden_state
        logits = model.lm_head(hidden[0, targets])
    return functional.cross_entropy(logits.float(), ids[0, first + 1 :][targets])


@torch.no_grad()
def plays(model: PreTrainedModel, dialogues: Sequence[Encoded]) -> Plays:
    """Score a model on dialogues, with one forward pass per dialogue."""
    greedy, sampled = [], []
    for dialogue in dialogues:
        ids, spoken = torch.tensor([dialogue.ids]), torch.tensor(dialogue.spoken)[1:]
        logits = model.lm_head(model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state[0, spoken])
        said = ids[0, 1:][spoken]
        greedy.append(float((logits.argmax(-1) == said).all()))
        sampled.append((-functional.cross_entropy(logits.float(), said, reduction="sum")).exp().item())
    return Plays(mean(greedy), mean(sampled))
