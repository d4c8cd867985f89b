"""The policy as a harness asks it: a tree of messages; each of its chains has the token stream sampled for it.

A request continues after the longest part of a chain that its history repeats and that ends with an answer of the
policy: the tokens up to there stay as they were sampled. After a chain's last answer it continues the chain, after an
earlier one it starts a branch. Any other request (a rewritten history, a sub-agent) starts a new chain. The main chain
is the one with the most calls and answers that reached the episode.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from env_service.environments.kit.formats import Format
from env_service.environments.kit.tool_calls import AGENT_FORMATS, NATIVE, write_message
from seal.rollout.dialogue import Dialogue
from seal.rollout.harness.evidence import announced, holds, words
from seal.rollout.harness.messages import Answer, ChatMessage, Request, read, rendered, rendered_start, without_thoughts
from seal.rollout.speaker import Said, SpeakerFault
from seal.rollout.token_path import DialogueRefused

if TYPE_CHECKING:
    from seal.rollout.engine import EngineSpeaker
    from seal.rollout.stream import TokenStream


class OutOfBudget(Exception):
    """The policy may say no more; the text is the budget, a key of CUTS."""


@dataclass(eq=False)
class Message:
    """One message that the policy sampled, a node of the rollout's tree.

    heard: the dialogue up to and including it, as the harness repeats it. tools: the documents shown by then, by name.
    length: the number of messages up to and including it in the policy's format. text: what it says, without thoughts.
    tokens: sampled ones. calls: those that have not reached the episode; due: those that were not made. cut: the budget
    that cut it, or that the request's `max_tokens` lowered, "" if none did. reached: how often it or a call of it has.
    """

    heard: tuple[ChatMessage, ...]
    tools: Mapping[str, Mapping[str, Any]]
    length: int
    text: str
    tokens: int
    calls: list[tuple[str, Any]]
    due: list[tuple[str, Any]]
    cut: str
    reached: int = 0

    def continued(self, messages: Sequence[ChatMessage], tools: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether a request continues from here: with new messages, and with new tools only if these announce them.

        A new answer in the policy's name, such as a prefill, was not sampled.
        """
        new = messages[len(self.heard) :]
        if not new or new[-1].role == "assistant" or tuple(messages[: len(self.heard)]) != self.heard:
            return False
        text = "\n".join(message.text for message in new)
        known = all(tools.get(name) == tool for name, tool in self.tools.items())
        return known and all(announced(tool, text) for name, tool in tools.items() if name not in self.tools)


@dataclass(eq=False)
class Chain:
    """One dialogue of the policy, a path from the root of the tree to a leaf.

    tools: the documents that it shows, by name. dialogue: the messages in the policy's format. said: those that were
    sampled, from the first on; a branch shares some of them with the chain that it left.
    """

    speaker: "EngineSpeaker"
    tools: dict[str, Mapping[str, Any]]
    dialogue: Dialogue
    said: list[Message]

    @property
    def reached(self) -> int:
        """How many of its calls and messages have reached the episode."""
        return sum(message.reached for message in self.said)

    def branch(self, message: Message, speaker: "EngineSpeaker") -> "Chain":
        """Another chain, which continues after a message of this one."""
        number = self.said.index(message) + 1
        speaker.stream = self.speaker.stream.branch(number)
        cut = [each for each in self.dialogue.truncated if each < number]
        return Chain(speaker, {}, Dialogue(truncated=cut), self.said[:number])


class Policy:
    """The chains of one rollout.

    speaker: makes the one of the chain with this number, from 0. prompt_mode: names the format in which the policy
    reads tools and writes calls, hermes if it is an environment's own. trained: `all` chains, or the `main` one. cues:
    what Omega adds to a system text with tools. turn: the current user turn. over: the rollout asks for no more.
    unsampled: the calls that reached the episode and that no sampled message holds.
    """

    def __init__(
        self,
        speaker: Callable[[int], "EngineSpeaker"],
        prompt_mode: str,
        max_steps: int | None,
        trained: Literal["all", "main"] = "all",
    ):
        self._speaker, self._max_steps, self._trained = speaker, max_steps, trained
        self._form: Format = AGENT_FORMATS.get(prompt_mode, AGENT_FORMATS["hermes"])
        self._one_at_a_time = asyncio.Lock()
        self._chains: list[Chain] = []
        self.said: list[Message] = []  # of all chains, in the order in which they were sampled
        self._asking: asyncio.Task[Any] | None = None
        self._unheard: tuple[Request, Answer] | None = None
        self.cues, self.turn, self.over, self.unsampled = "", 0, False, 0

    @property
    def streams(self) -> "list[TokenStream]":
        """The tokens of the chains that are trained, the main one last; each sampled token counts in one of them."""
        if not self._chains:
            return [self._speaker(0).stream]
        main = max(self._chains[::-1], key=lambda chain: (chain.reached, sum(each.tokens for each in chain.said)))
        streams = [main.speaker.stream]
        for chain in self._chains if self._trained == "all" else ():
            if chain is not main:
                streams.insert(-1, chain.speaker.stream.without(streams))
        return streams

    def check(self) -> None:
        """TokenPathError unless the tokens of each chain are what was sampled."""
        for chain in self._chains:
            chain.speaker.stream.check()

    def facts(self) -> dict[str, Any]:
        """The fields of the record that the chains decide."""
        streams, sampled = self.streams, sum(message.tokens for message in self.said)
        weights = [pair for each in streams if (pair := each.facts().get("weights"))]
        return streams[-1].facts() | {
            "weights": (min(old for old, _ in weights), max(new for _, new in weights)) if weights else None,
            "tokens": sampled,
            "rewritten": max(0, len(self._chains) - 1),
            "trained_share": sum(sum(each.mask) for each in streams) / sampled if sampled else 1.0,
            "unsampled_calls": self.unsampled,
            "tokens_in": sum(chain.speaker.tokens_in for chain in self._chains),
        }

    @property
    def asked(self) -> bool:
        """True while a message is sampled."""
        return self._one_at_a_time.locked()

    def reach(self, text: str) -> str:
        """Take in a message or a call that reaches the episode; return the limit that cut it, "" if none did.

        It is credited to the latest message that equals it, to the latest that made the call or, for an answer within
        code, to the shortest that contains it. No message gets credit for words that the policy did not use.
        """
        said = without_thoughts(text)
        found = [self._latest(lambda each: each.text == said)]
        if found == [None] and (calls := self._form.parse(text).calls):
            found = [self._holder(*call) for call in calls]
            self.unsampled += found.count(None)
        elif found == [None] and (part := words(said)).strip():
            parts = [each for each in reversed(self.said) if part in words(each.text)]
            found = [min(parts, key=lambda each: len(each.text), default=None)]
        for message in filter(None, found):
            message.reached += 1
        return next((message.cut for message in found if message is not None and message.cut), "")

    async def in_turn(self, name: str, arguments: Mapping[str, Any], offered: tuple[str, ...]) -> None:
        """Wait for the calls before this one in its message, which SDKs make at once, so that one may overtake another.

        offered: the episode's tools. A call that does not come within a second is not waited for again.
        """
        message, looks = self._latest(lambda each: _place(each.due, name, arguments) is not None), count(1)
        if message is not None:
            message.due = [call for call in message.due if call[0].endswith(offered)]
            while place := _place(message.due, name, arguments):
                await asyncio.sleep(0.01)
                del message.due[: next(looks) % 100 == 0]
            del message.due[: place == 0]

    def _holder(self, name: str, arguments: Mapping[str, Any]) -> Message | None:
        """The message that made a call."""
        if made := self._latest(lambda each: _place(each.calls, name, arguments) is not None):
            del made.calls[_place(made.calls, name, arguments)]
        return made or self._latest(lambda each: holds(each.text, name, arguments))

    def _latest(self, holds_it: Callable[[Message], bool]) -> Message | None:
        return next(filter(holds_it, reversed(self.said)), None)

    def end(self) -> None:
        """Ask for no more; a message that is still being sampled is not part of the rollout."""
        self.over = True
        if self._asking is not None:
            self._asking.cancel()

    async def complete(self, request: Request, gone: Callable[[], Awaitable[bool]] | None = None) -> Answer | None:
        """The next message, None once the rollout is over or the client has left before its turn.

        gone: whether the client has left. The answer that it did not wait for answers the same request, which SDKs
        repeat after their timeout. OutOfBudget if a budget is used up, SpeakerFault if the engine fails.
        """
        waits = self._one_at_a_time.locked()
        async with self._one_at_a_time:
            if (waits and gone is not None and await gone()) or self.over:
                return None
            if self._unheard is not None and self._unheard[0] == request:
                answer = self._unheard[1]
                if gone is None or not await gone():
                    self._unheard = None  # the same request once more asks for another sample
                return answer
            chain = self._chain(request.messages, request.tools)
            said = await self._ask(chain, request.most)
            answer = _answer(chain, said, self._form, request)
            message = Message(
                heard=(*request.messages, answer.heard),
                tools=chain.tools,
                length=len(chain.dialogue.messages),
                text=without_thoughts(said.text),
                tokens=len(answer.tokens),
                calls=list(answer.heard.calls),
                due=list(answer.heard.calls),
                cut=chain.speaker.limit if said.truncated else "",
            )
            chain.said.append(message)
            self.said.append(message)
            if chain not in self._chains:
                self._chains.append(chain)
            self._unheard = (request, answer) if gone is not None and await gone() else None
            return answer

    async def _ask(self, chain: Chain, most: int | None) -> Said:
        """The next message of a chain, of `most` tokens at most."""
        others = self._chains not in ([], [chain])
        if others and self._max_steps is not None and len(self.said) >= self._max_steps:
            self.over = True
            raise OutOfBudget("max_steps")  # an only chain counts its own messages
        chain.dialogue.turn = self.turn  # and its tools, those that no system text shows included
        chain.dialogue.info = {"tools": [{"function": tool} for tool in chain.tools.values()]}
        try:
            self._asking = asyncio.current_task()
            said = await chain.speaker.say(chain.dialogue, most)
        except SpeakerFault as fault:
            if not isinstance(fault, DialogueRefused) and (fault.cause != "prompt_too_long" or not others):
                raise  # a history of the harness's own ends this rollout, not the run
            raise SpeakerFault("harness", f"it sent a history that the policy cannot read: {fault}") from fault
        finally:
            self._asking = None
        if said is None:
            self.over = True
            raise OutOfBudget(chain.speaker.limit)
        if said.truncated:
            chain.dialogue.truncated.append(len(chain.said))
        chain.dialogue.messages = [*chain.dialogue.messages, {"role": "assistant", "content": said.text}]
        silent = self._form.name == NATIVE and said.text == write_message("", [])  # a form that only the service has
        return said._replace(text="") if silent else said

    def _chain(self, messages: tuple[ChatMessage, ...], tools: Mapping[str, Mapping[str, Any]]) -> Chain:
        """The chain that a request continues, a branch of one, or a new one."""
        known = [
            (len(message.heard), message is chain.said[-1], chain, message)
            for chain in self._chains
            for message in chain.said
        ]
        known.sort(key=lambda each: each[:2], reverse=True)
        found = next((each for each in known if each[3].continued(messages, tools)), None)
        if found is None:
            start = rendered_start(messages, [*tools.values()], self._form, self.cues)
            return Chain(self._speaker(len(self._chains)), dict(tools), Dialogue(messages=start), [])
        heard, continues, chain, message = found
        before = chain.dialogue.messages[: message.length]
        if not continues:
            chain = chain.branch(message, self._speaker(len(self._chains)))
        chain.dialogue.messages = [*before, *rendered(messages[heard:], self._form)]
        chain.tools = {**message.tools, **tools}
        return chain


def _place(calls: Sequence[tuple[str, Any]], name: str, arguments: Mapping[str, Any]) -> int | None:
    """Where a call is among others; clients may add a server's name, and SDKs defaults to the arguments."""
    for place, (own, given) in enumerate(calls):
        if own.endswith(name) and all(arguments.get(key, ...) == value for key, value in given.items()):
            return place
    return None


def _answer(chain: Chain, said: Said, form: Format, request: Request) -> Answer:
    """The last message of a chain; a message that a limit cut has no calls."""
    heard, calls = read(said.text, form if request.tools and not said.truncated else None, request.tools)
    stream = chain.speaker.stream
    ids, values = stream.sampled[-1].ids, stream.sampled[-1].logprobs
    tokens = list(zip((stream.decoded([each]) for each in ids) if request.logprobs else ids, values, strict=True))
    text = heard.text if calls else said.text
    return Answer(heard, text, calls, said.truncated, len(stream.ids) - len(ids), tokens)
