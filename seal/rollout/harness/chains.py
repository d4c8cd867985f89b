"""The policy as a harness asks it: chains of messages, each with the token stream that was sampled for it.

A request whose history begins with a chain, its last answer included, continues it: the tokens stay as they were
sampled. Any other one starts a new chain: a harness that rewrites its history, or a sub-agent. The chain whose calls
and answers reached the episode is the one that is trained: a note or a verdict of a judge earned no reward.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from env_service.environments.kit.formats import Format
from env_service.environments.kit.tool_calls import AGENT_FORMATS
from seal.rollout.dialogue import Dialogue
from seal.rollout.harness.messages import (
    Answer,
    ChatMessage,
    Request,
    read,
    rendered,
    rendered_start,
    without_thoughts,
)
from seal.rollout.speaker import Said, SpeakerFault

if TYPE_CHECKING:
    from seal.rollout.engine import EngineSpeaker
    from seal.rollout.stream import TokenStream


class OutOfBudget(Exception):
    """The policy may say no more; the text is the budget, a key of CUTS."""


@dataclass
class Chain:
    """One dialogue of the policy.

    heard: its messages as the harness sends them. tools: the documents that it knows, by name. dialogue: the messages
    in the policy's format. texts: what it said, without thoughts. calls: of these messages, that have not reached the
    episode. reached: how many of its calls and messages have.
    """

    speaker: "EngineSpeaker"
    tools: dict[str, Mapping[str, Any]]
    heard: tuple[ChatMessage, ...] = ()
    dialogue: Dialogue = field(default_factory=Dialogue)
    texts: list[str] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    reached: int = 0

    @property
    def tokens(self) -> int:
        """Sampled tokens."""
        return sum(self.speaker.stream.mask)

    def continued(self, messages: Sequence[ChatMessage], tools: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether a request goes on from here: with new messages, and with new tools only if these announce them.

        A new answer in the policy's name, as a prefill is, was not sampled.
        """
        new = messages[len(self.heard) :]
        text = "\n".join(message.text for message in new)
        known = all(tools.get(name) == tool for name, tool in self.tools.items())
        known = known and all(_announced(tool, text) for name, tool in tools.items() if name not in self.tools)
        heard = tuple(messages[: len(self.heard)])
        return known and heard == self.heard and bool(new) and new[-1].role != "assistant"

    def said(self, messages: tuple[ChatMessage, ...], sampled: str, heard: ChatMessage) -> None:
        """Take in a message of the policy, and how later requests repeat it, after those of the request."""
        self.heard = (*messages, heard)
        self.texts.append(without_thoughts(sampled))
        self.calls += heard.calls

    def gave(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the policy made a call here; an SDK may have added defaults to its arguments."""
        for call in self.calls:
            if call[0] == name and all(arguments.get(key, ...) == value for key, value in call[1].items()):
                self.calls.remove(call)
                return True
        return False


class Policy:
    """The chains of one rollout.

    speaker: makes the one of the chain with this number, from 0. prompt_mode: names the format in which the policy
    reads tools and writes calls, hermes if it is an environment's own. cues: what Omega adds to a system text with
    tools. turn: the current user turn. over: the rollout asks for no more. unsampled: the calls that reached the
    episode and that no sampled message holds.
    """

    def __init__(self, speaker: Callable[[int], "EngineSpeaker"], prompt_mode: str, max_steps: int | None):
        self._speaker = speaker
        self._form: Format = AGENT_FORMATS.get(prompt_mode, AGENT_FORMATS["hermes"])
        self._max_steps = max_steps
        self._one_at_a_time = asyncio.Lock()
        self._chains: list[Chain] = []
        self._asking: asyncio.Task[Any] | None = None
        self._unheard: tuple[Request, Answer] | None = None
        self.cues, self.turn, self.over, self.unsampled = "", 0, False, 0

    @property
    def trained(self) -> "TokenStream":
        """The tokens of the chain most of whose messages reached the episode; the longest one if none did."""
        chains = [each for each in self._chains[::-1] if each.texts]
        chain = max(chains, key=lambda each: (each.reached, each.tokens), default=None)
        return (chain.speaker if chain is not None else self._speaker(0)).stream

    def facts(self) -> dict[str, Any]:
        """The fields of the record that the chains decide."""
        trained, sampled = self.trained.facts(), sum(each.tokens for each in self._chains)
        return trained | {
            "rewritten": max(0, len(self._chains) - 1),
            "trained_share": trained["tokens"] / sampled if sampled else 1.0,
            "unsampled_calls": self.unsampled,
            "tokens_in": sum(chain.speaker.tokens_in for chain in self._chains),
        }

    @property
    def asked(self) -> bool:
        """True while a message is sampled."""
        return self._one_at_a_time.locked()

    def reach(self, text: str) -> str:
        """Take in a message or a call that reaches the episode; return the limit that cut it, "" if none did.

        A message in other words than the policy's own counts as the last one of the chain that spoke last.
        """
        latest, said = self._chains[::-1], without_thoughts(text)
        for chain in latest:
            if said in chain.texts:
                chain.reached += 1
                cut = len(chain.texts) - 1 - chain.texts[::-1].index(said) in chain.dialogue.truncated
                return chain.speaker.limit if cut else ""
        for call in self._form.parse(text).calls:
            self._reach_call(*call)
        spoke = next((each for each in latest if each.texts), None)
        return spoke.speaker.limit if spoke and len(spoke.texts) - 1 in spoke.dialogue.truncated else ""

    def _reach_call(self, name: str, arguments: Mapping[str, Any]) -> None:
        latest = self._chains[::-1]
        chain = next((each for each in latest if each.gave(name, arguments)), None) or next(
            (each for each in latest if any(_holds(text, name, arguments) for text in each.texts)), None
        )
        if chain is None:
            self.unsampled += 1
        else:
            chain.reached += 1

    def end(self) -> None:
        """Ask for no more; a message that is still being sampled is no part of the rollout."""
        self.over = True
        if self._asking is not None:
            self._asking.cancel()

    async def complete(self, request: Request, gone: Callable[[], Awaitable[bool]] | None = None) -> Answer | None:
        """The next message, None once the rollout is over or the client has left before its turn.

        gone: whether the client has left. The answer that it left is the answer to the same request, as SDKs repeat it
        after their timeout. OutOfBudget if a budget is used up, SpeakerFault if the engine fails.
        """
        async with self._one_at_a_time:
            if (gone is not None and await gone()) or self.over:
                return None
            if self._unheard is not None and self._unheard[0] == request:
                return self._unheard[1]
            chain = self._chain(request.messages, request.tools)
            said = await self._ask(chain, request.most)
            answer = _answer(chain, said, self._form, request)
            chain.said(request.messages, said.text, answer.heard)
            self._unheard = (request, answer) if gone is not None and await gone() else None
            return answer

    async def _ask(self, chain: Chain, most: int | None) -> Said:
        """The next message of a chain, of `most` tokens at most."""
        others = len(self._chains) > 1
        if others and self._max_steps is not None and sum(len(each.texts) for each in self._chains) >= self._max_steps:
            self.over = True
            raise OutOfBudget("max_steps")  # a chain that is alone counts its own messages
        chain.dialogue.turn = self.turn
        try:
            self._asking = asyncio.current_task()
            said = await chain.speaker.say(chain.dialogue, most)
        except SpeakerFault as fault:
            if fault.cause != "prompt_too_long" or not others:
                raise  # a rewritten history that is too long ends this rollout, not the run
            raise SpeakerFault("harness", f"it rewrote the history: {fault}") from fault
        finally:
            self._asking = None
        if said is None:
            self.over = True
            raise OutOfBudget(chain.speaker.limit)
        self._chains.sort(key=lambda each: each is chain)  # the one that spoke last
        if said.truncated:
            chain.dialogue.truncated.append(len(chain.texts))
        chain.dialogue.messages = [*chain.dialogue.messages, {"role": "assistant", "content": said.text}]
        return said

    def _chain(self, messages: tuple[ChatMessage, ...], tools: Mapping[str, Mapping[str, Any]]) -> Chain:
        """The chain that a request continues, the longest one, or a new one."""
        known = [chain for chain in self._chains if chain.continued(messages, tools)]
        if known:
            chain = max(known, key=lambda each: len(each.heard))
            new = rendered(messages[len(chain.heard) :], self._form)
            chain.dialogue.messages = [*chain.dialogue.messages, *new]
            chain.tools |= tools
        else:
            chain = Chain(self._speaker(len(self._chains)), dict(tools))
            chain.dialogue.messages = rendered_start(messages, [*tools.values()], self._form, self.cues)
            self._chains.append(chain)
        return chain


def _answer(chain: Chain, said: Said, form: Format, request: Request) -> Answer:
    """What a chain said last; a message that a limit cut has no calls."""
    heard, calls = read(said.text, form if request.tools and not said.truncated else None, request.tools)
    stream = chain.speaker.stream
    ids, values = stream.sampled[-1].ids, stream.sampled[-1].logprobs
    tokens = list(zip((stream.decoded([each]) for each in ids) if request.logprobs else ids, values, strict=True))
    text = heard.text if calls else said.text
    return Answer(heard, text, calls, said.truncated, len(stream.ids) - len(ids), tokens)


def _announced(tool: Mapping[str, Any], text: str) -> bool:
    """Whether a text holds a tool's document: its quoted name, its description, and the names of its arguments."""
    if not re.search(rf"[\"']{re.escape(tool['name'])}[\"']", text):
        return False
    words = _letters(text)
    return all(_letters(each) in words for each in (tool["description"], *tool["parameters"].get("properties", {})))


def _holds(text: str, name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a text names a tool and all values of its arguments, as code or a format of the harness's own does."""
    letters = _letters(text)
    return name in text and all(_letters(value) in letters for value in _values(arguments))


def _values(value: Any) -> Iterator[str]:
    """The texts and numbers of a JSON value."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _values(each)
    elif not isinstance(value, bool) and value is not None:
        yield value if isinstance(value, str) else repr(value).removesuffix(".0")


def _letters(text: str) -> str:
    """Letters and digits, the same in JSON and in Python's notation."""
    return re.sub(r"\\[nrt]|[\W_]", "", text).casefold()
