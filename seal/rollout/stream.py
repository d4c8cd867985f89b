"""The tokens of one dialogue as they are trained: what was sampled, with masked context between.

verl's continuous-token builder renders the context; nothing is appended before its room is checked.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from jinja2.exceptions import TemplateError
from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from seal.rollout.budgets import Budgets
from seal.rollout.dialogue import Dialogue
from seal.rollout.native import NativeFormat, request
from seal.rollout.speaker import Speaker, SpeakerFault
from seal.rollout.token_path import DialogueRefused, Sampled, TokenPathError, check

Result = TypeVar("Result")


class TokenStream:
    """The growing tokens of one dialogue, never more than the budgets allow; `hear` and `append` alternate.

    ids: prompt and response. prompt_length: tokens of the first prompt. mask: 1 for a sampled token, 0 for context, per
    response token; logprobs: natural logarithms, 0 for context, per response token. spans: (turn, start, end) of each
    sampled message in response tokens. versions: the steps of the weights that sampled them. room: the most tokens of
    the next message; limit: the budget (a key of CUTS) that leaves no more. stops: the tokens that end a message.
    native: the model's own tool format, None if the prompt mode is a text.
    """

    def __init__(self, loop: AgentLoopBase, budgets: Budgets, trains: bool, native: NativeFormat | None = None):
        self._loop, self._budgets, self._trains, self._native = loop, budgets, trains, native
        self._known: list[dict[str, Any]] = []
        self.stops = {loop.tokenizer.eos_token_id, *(native.stops if native is not None else ())}
        self._heard = 0  # how many messages of the dialogue are in the tokens
        self._before: list[int] = []  # the same when each message was sampled
        self.ids: list[int] = []
        self.prompt_length = 0
        self.mask: list[int] = []
        self.logprobs: list[float] = []
        self.spans: list[tuple[int, int, int]] = []
        self.sampled: list[Sampled] = []
        self.versions: list[int] = []
        self.room, self.limit = 0, ""

    def empty(self) -> "TokenStream":
        """A stream without tokens, for the same policy and budgets."""
        return TokenStream(self._loop, self._budgets, self._trains, self._native)

    def branch(self, number: int) -> "TokenStream":
        """Another stream that begins with the first `number` sampled messages of this one."""
        other, end = self.empty(), self.spans[number - 1][2]
        other.ids, other.prompt_length = self.ids[: self.prompt_length + end], self.prompt_length
        other.mask, other.logprobs = self.mask[:end], self.logprobs[:end]
        other.spans, other.sampled = self.spans[:number], self.sampled[:number]
        other.versions = self.versions[: 2 * number]
        other._before, other._heard = self._before[:number], self._before[number - 1]
        return other

    def without(self, others: "Sequence[TokenStream]") -> "TokenStream":
        """The same tokens; a message that is also in one of the others is context."""
        there = {id(message) for other in others for message in other.sampled}
        own = self.branch(len(self.sampled))
        for message, (_, start, end) in zip(self.sampled, self.spans, strict=True):
            if id(message) in there:
                own.leave_out(start, end)
        return own

    def leave_out(self, start: int, end: int) -> None:
        """Make some tokens of the response context."""
        self.mask[start:end] = [0] * (end - start)
        self.logprobs[start:end] = [0.0] * (end - start)

    @property
    def response(self) -> list[int]:
        """The tokens after the first prompt."""
        return self.ids[self.prompt_length :]

    async def text(self, ids: Sequence[int], cut: bool) -> str:
        """A sampled message as the service reads it; cut: a limit cut it, so that it has no stop token."""
        if self._native is None:
            return self.decoded(ids if cut else ids[:-1])
        return await self._native.read(self.decoded(ids), "" if cut else self.decoded(ids[-1:]), self._known)

    def decoded(self, ids: Sequence[int]) -> str:
        """The text of some tokens, special ones included."""
        return self._loop.tokenizer.decode(ids, skip_special_tokens=False)

    async def hear(self, dialogue: Dialogue) -> int:
        """Append what the environment said if that leaves the next message room; return the room in tokens.

        Raises DialogueRefused if the chat template refuses the dialogue.
        """
        ids, mask, logprobs, prompt = self.ids, self.mask, self.logprobs, self.prompt_length
        messages, tools = dialogue.messages, None
        if self._native is not None:
            messages, tools, announced = request(messages)
            self._known = [*tools, *announced, *dialogue.info.get("tools", ())]
        if not ids:
            ids, prompt = await self._start(messages, tools)
            mask, logprobs = [0] * (len(ids) - prompt), [0.0] * (len(ids) - prompt)
        else:
            if dialogue.truncated and dialogue.truncated[-1] == len(self.sampled) - 1:
                # In validation, as in the official runner, a cut message is closed and the dialogue continues.
                ids, mask, logprobs = [*ids, self._loop.tokenizer.eos_token_id], [*mask, 0], [*logprobs, 0.0]
            previous = messages[: self._heard + 1]  # with the message that was sampled last
            merged, *_ = await on_token_path(
                self._loop.ct_merge_context_msg(previous, messages, ids, mask, logprobs, tools=tools)
            )
            new = merged.token_ids[len(ids) - (taken := merged.removed_prefix_token_count) :]
            # verl removes a stop token that also opens the next message; it was sampled, so it stays, once.
            new = new[taken:] if taken and new[:taken] == ids[-taken:] else new
            ids, mask, logprobs = [*ids, *new], [*mask, *(0 for _ in new)], [*logprobs, *(0.0 for _ in new)]
        self.limit, self.room = self._budgets.room(len(mask), len(ids), self._trains)
        if self.room >= 1:
            self.ids, self.mask, self.logprobs, self.prompt_length = ids, mask, logprobs, prompt
            self._heard = len(messages)
        return self.room

    async def _start(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
    ) -> tuple[list[int], int]:
        """The first tokens, and how many of them are the first prompt.

        A history that a harness rewrote also contains what follows the first prompt, which is context of the response.
        """
        ids = await on_token_path(self._loop.ct_build_initial_tokens(messages, tools=tools))
        roles = [message["role"] for message in messages]
        head, start = roles.index("assistant") if "assistant" in roles else 0, ids
        if head:
            start = await on_token_path(self._loop.ct_build_initial_tokens(messages[:head], tools=tools))
        prompt = len(start) if ids[: len(start)] == start else len(ids)
        if prompt > (limit := self._loop.rollout_config.prompt_length):
            raise SpeakerFault(
                "prompt_too_long",
                f"a first prompt has {prompt} tokens and data.max_prompt_length is {limit}: "
                f"raise data.max_prompt_length to at least {prompt}",
            )
        return ids, prompt

    async def append(self, turn: int, message: Sampled) -> None:
        """Append a message as it was sampled; TokenPathError if it is longer than its room."""
        ids, logprobs, start = list(message.ids), list(message.logprobs), len(self.mask)
        if len(ids) > self.room:
            raise TokenPathError(f"the engine returned {len(ids)} tokens for a message of at most {self.room}")
        merged, self.mask, self.logprobs = await on_token_path(
            self._loop.ct_merge_assistant_token(self.ids, ids, self.mask, self.logprobs, assistant_logprobs=logprobs)
        )
        self.ids, self.room = merged.token_ids, 0
        self.sampled.append(message)
        self._before.append(self._heard)
        self.spans.append((turn, start, len(self.mask)))

    def check(self) -> None:
        """TokenPathError unless the response is what was sampled."""
        spans = [(start, end) for _, start, end in self.spans]
        check(self.response, self.mask, self.logprobs, spans, self.sampled)

    def facts(self) -> dict[str, Any]:
        """The fields of the record that the tokens decide."""
        return {
            "tokens": sum(self.mask),
            "prompt_tokens": self.prompt_length,
            "weights": (min(self.versions), max(self.versions)) if self._trains and self.versions else None,
        }


class TokenSpeaker(Speaker):
    """A speaker whose messages are tokens of one stream."""

    stream: TokenStream

    @property
    def streams(self) -> list[TokenStream]:
        """The tokens that are trained."""
        return [self.stream]

    async def ended(self, dialogue: Dialogue) -> None:
        """TokenPathError unless the response is what was sampled."""
        self.stream.check()


async def on_token_path(step: Awaitable[Result]) -> Result:
    """Await a step of verl's token builder; raise DialogueRefused if it refuses the dialogue."""
    try:
        return await step
    except (ValueError, TypeError, TemplateError) as error:  # verl tries twice: the first error says why
        raise DialogueRefused(f"verl's token builder refused the dialogue: {error.__context__ or error}") from error
