"""The policy as a harness asks it: chains of messages, each with the token stream that was sampled for it.

A request whose history begins with a chain, its last answer included, continues it: the tokens stay as they were
sampled. Any other one starts a new chain: a harness that rewrites its history, or a sub-agent. The chain that spoke
last is the one that is trained.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from env_service.environments.kit.formats import FORMATS, Format
from seal.rollout.dialogue import Dialogue
from seal.rollout.harness import chat
from seal.rollout.speaker import Said, SpeakerFault

if TYPE_CHECKING:
    from seal.rollout.engine import EngineSpeaker


class OutOfBudget(Exception):
    """The policy may say no more; the text is the budget, a key of CUTS."""


@dataclass
class Chain:
    """One dialogue of the policy.

    heard: its messages as the harness sends them. tools: the names that it knows. dialogue: the same in the policy's
    format.
    """

    speaker: "EngineSpeaker"
    tools: set[str]
    heard: tuple[chat.ChatMessage, ...] = ()
    dialogue: Dialogue = field(default_factory=Dialogue)

    def continued(self, messages: Sequence[chat.ChatMessage], tools: Sequence[str]) -> bool:
        """Whether a request goes on from here: with new messages, and with new tools only if these announce them.

        A new answer in the policy's name, as a prefill is, was not sampled.
        """
        new = messages[len(self.heard) :]
        text = "\n".join(message.text for message in new)
        known = self.tools <= set(tools) and all(name in text for name in tools if name not in self.tools)
        heard = tuple(messages[: len(self.heard)])
        return known and heard == self.heard and bool(new) and new[-1].role != "assistant"


class Policy:
    """The chains of one rollout.

    speaker: makes the one of the chain with this number, from 0. prompt_mode: names the format in which the policy
    reads tools and writes calls, hermes if it is an environment's own. cues: what Omega adds to a system text with
    tools. turn: the current user turn. over: the rollout asks for no more.
    """

    def __init__(self, speaker: Callable[[int], "EngineSpeaker"], prompt_mode: str, max_steps: int | None):
        self._speaker = speaker
        self._form: Format = FORMATS.get(prompt_mode, FORMATS["hermes"])
        self._max_steps = max_steps
        self._one_at_a_time = asyncio.Lock()
        self._chains: list[Chain] = []
        self._asking: asyncio.Task[Any] | None = None
        self._unheard: tuple[chat.Request, dict[str, Any]] | None = None
        self.cues, self.turn, self.over = "", 0, False

    @property
    def trained(self) -> "EngineSpeaker":
        """The speaker of the chain that spoke last."""
        return next(
            (each.speaker for each in self._chains[::-1] if each.speaker.stream.sampled), None
        ) or self._speaker(0)

    @property
    def others(self) -> int:
        """The number of the other chains."""
        return max(0, len(self._chains) - 1)

    @property
    def tokens_in(self) -> int:
        """Tokens of the prompts of all its requests."""
        return sum(chain.speaker.tokens_in for chain in self._chains)

    @property
    def asked(self) -> bool:
        """True while a message is sampled."""
        return self._one_at_a_time.locked()

    def cut(self, text: str) -> bool:
        """Whether a limit cut this message of the policy; in other words than its own, the last one."""
        spoke = [each for each in self._chains if each.heard]
        same = [each for each in spoke if each.heard[-1].text == chat.without_thoughts(text)]
        return any(len(each.speaker.stream.sampled) - 1 in each.dialogue.truncated for each in (same or spoke)[-1:])

    def end(self) -> None:
        """Ask for no more; a message that is still being sampled is no part of the rollout."""
        self.over = True
        if self._asking is not None:
            self._asking.cancel()

    async def complete(
        self, request: chat.Request, gone: Callable[[], Awaitable[bool]] | None = None
    ) -> dict[str, Any] | None:
        """The body of the answer, None once the rollout is over or the client has left before its turn.

        gone: whether the client has left. The answer that it left is the answer to the same request, as SDKs repeat it
        after their timeout. OutOfBudget if a budget is used up, SpeakerFault if the engine fails.
        """
        messages = request.heard()
        tools = [each.document() for each in request.tools or ()]
        async with self._one_at_a_time:
            if (gone is not None and await gone()) or self.over:
                return None
            if self._unheard is not None and self._unheard[0] == request:
                return self._unheard[1]
            chain = self._chain(messages, tools)
            said = await self._ask(chain, request.max_completion_tokens or request.max_tokens)
            heard, body = _completion(chain, said, self._form if tools else None, tools, bool(request.logprobs))
            chain.heard = (*messages, heard)
            self._unheard = (request, body) if gone is not None and await gone() else None
            return body

    async def _ask(self, chain: Chain, most: int | None) -> Said:
        """The next message of a chain, of `most` tokens at most."""
        spoken = sum(len(each.speaker.stream.sampled) for each in self._chains)
        if self.others and self._max_steps is not None and spoken >= self._max_steps:
            self.over = True
            raise OutOfBudget("max_steps")  # a chain that is alone counts its own messages
        chain.dialogue.turn = self.turn
        try:
            self._asking = asyncio.current_task()
            said = await chain.speaker.say(chain.dialogue, most)
        except SpeakerFault as fault:
            if fault.cause != "prompt_too_long" or not self.others:
                raise  # a rewritten history that is too long ends this rollout, not the run
            raise SpeakerFault("harness", f"it rewrote the history: {fault}") from fault
        finally:
            self._asking = None
        if said is None:
            self.over = True
            raise OutOfBudget(chain.speaker.limit)
        self._chains.sort(key=lambda each: each is chain)  # the one that spoke last
        if said.truncated:
            chain.dialogue.truncated.append(len(chain.speaker.stream.sampled) - 1)
        chain.dialogue.messages = [*chain.dialogue.messages, {"role": "assistant", "content": said.text}]
        return said

    def _chain(self, messages: tuple[chat.ChatMessage, ...], tools: Sequence[Mapping[str, Any]]) -> Chain:
        """The chain that a request continues, the longest one, or a new one."""
        names = [tool["name"] for tool in tools]
        known = [chain for chain in self._chains if chain.continued(messages, names)]
        if known:
            chain = max(known, key=lambda each: len(each.heard))
            new = chat.rendered(messages[len(chain.heard) :], self._form)
            chain.dialogue.messages = [*chain.dialogue.messages, *new]
            chain.tools |= set(names)
        else:
            chain = Chain(self._speaker(len(self._chains)), set(names))
            chain.dialogue.messages = chat.rendered_start(messages, tools, self._form, self.cues)
            self._chains.append(chain)
        return chain


def _completion(
    chain: Chain, said: Said, form: Format | None, tools: Sequence[Mapping[str, Any]], logprobs: bool
) -> tuple[chat.ChatMessage, dict[str, Any]]:
    """What a chain said last, as later requests repeat it, and as the body of a chat completion."""
    stream = chain.speaker.stream
    ids, values = stream.sampled[-1].ids, stream.sampled[-1].logprobs
    tokens = list(zip((stream.decoded([each]) for each in ids) if logprobs else ids, values, strict=True))
    names = [tool["name"] for tool in tools]
    return chat.completion(*said, form, names, len(stream.ids) - len(ids), tokens, logprobs)
