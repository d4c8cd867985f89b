"""Unread calls in the text of answers: the model writes calls in a form that the reader does not know."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from env_service.environments.kit.stray import stray_call
from env_service.environments.kit.tool_calls import MODE, read_message
from seal.records.trajectory import TrajectoryRecord
from seal.system.text import without_thoughts
from shelf.suites.answers import looks_like_call

SHARE = 0.1
"""The share of texts above which a warning appears; a policy that sometimes misses its form stays below."""
_PARSER = (
    "start the endpoint with the tool parser of this model (vLLM: --enable-auto-tool-choice --tool-call-parser NAME; "
    'with --checkpoint: --serve-args "--tool-call-parser NAME")'
)
_MODE = "name the prompt mode in whose form the model writes (--prompt-mode; openai_fc if the endpoint reads calls)"


class Unread(NamedTuple):
    """texts: answers from which no call was read. calls: those that look like a call. rollouts: the number with one."""

    texts: int
    calls: int
    rollouts: int
    mode: str

    @property
    def sentence(self) -> str:
        """A warning for the user, with the option that fixes it; "" if nothing stands out."""
        if self.calls <= SHARE * self.texts:
            return ""
        fix = _PARSER if self.mode == MODE else _MODE
        return (
            f"{self.calls} of {self.texts} answers without a call, in {self.rollouts} rollouts, look like calls that "
            f"nobody read; they count as the model's words. If the model means them as calls, {fix}."
        )


def unread(records: Iterable[TrajectoryRecord]) -> Unread:
    """Count the texts that look like unread calls in rollouts with a verdict.

    In a text mode, they count only if no call of the run was read: a form that is read at times is the model's fault.
    """
    judged = [record for record in records if record.infra is None]
    mode = judged[0].prompt_mode if judged else ""
    texts = [list(_texts(record)) for record in judged]
    count = sum(map(len, texts))
    if mode != MODE and any(record.calls for record in judged):
        return Unread(count, 0, 0, mode)
    looking = [sum(looks_like_call(text) or bool(stray_call(text, ())) for text in said) for said in texts]
    return Unread(count, sum(looking), sum(map(bool, looking)), mode)


def _texts(record: TrajectoryRecord) -> Iterator[str]:
    """The answers without an entry in `tool_calls`; in a text mode, that is every answer."""
    for message in record.messages:
        if message["role"] == "assistant":
            own = record.prompt_mode == MODE
            content, entries = read_message(message["content"]) if own else (message["content"], [])
            if not entries:
                yield without_thoughts(content)
