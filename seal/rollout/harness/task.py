"""One episode as a harness plays it: its messages, its tools and its user."""

import asyncio
import json
import os
import pkgutil
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from annotated_types import MaxLen
from pydantic import BaseModel

from env_service.environments.kit.tool_calls import AGENT_FORMATS, NATIVE
from seal.method.diagnosis.schema import with_json_types
from seal.rollout.dialogue import Dialogue
from seal.system.text import clipped, first_line

Harness = str | Sequence[str]
"""`module:function`, or a command with its arguments."""
USER, ENDED = "next_user_message", "The conversation has ended."
MAX_TEXT = 500_000
"""Characters of one message to the environment, whose service takes few more."""
MAX_REASON = 2_000
"""Characters of the reason why a harness gave up."""
_OPENING, _CLOSING = "<tool_response>", "</tool_response>"


class Event(NamedTuple):
    """What the harness, or the policy for it, did; value: the text, the budget, or the SpeakerFault."""

    kind: Literal["message", "call", "limit", "failed", "fault"]
    value: Any


class Text(BaseModel):
    """One message of the policy to the environment."""

    text: Annotated[str, MaxLen(MAX_TEXT)]


class Address(NamedTuple):
    """A model behind an OpenAI-compatible endpoint."""

    base_url: str
    api_key: str
    model: str


class Task:
    """What a harness gets for one rollout.

    base_url, api_key, model: of the policy, for any OpenAI client; anthropic_base_url: for Anthropic's. mcp_url: the
    episode's tools over MCP (streamable HTTP), the user among them. task_url: the same as `messages` and `say`, for
    programs in any language. deadline_s: seconds for the whole episode. messages: those that the episode opens with,
    as SEAL's own loop shows them to the policy. waits: a call or an answer has no reply yet. order: awaits a turn.
    """

    def __init__(self, dialogue: Dialogue, address: Address, task_url: str, deadline_s: float):
        self.base_url, self.api_key, self.model = address.base_url, address.api_key, address.model
        self.task_url, self.mcp_url, self.deadline_s = task_url, f"{task_url}/mcp", deadline_s
        self.messages: list[dict[str, str]] = list(dialogue.messages)
        self.order: Callable[..., Awaitable[None]] | None = None
        self.ended = self.waits = False
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self._native: Mapping[str, Any] | None = dialogue.info.get("native")
        self._mode, self._turn, self._heard = dialogue.info.get("tool_prompt_mode"), 0, len(dialogue.messages)
        self._unread: str | None = dialogue.messages[-1]["content"]
        if self._native and self._native["instructions"]:
            self._unread = f"{self._native['instructions']}\n\n{self._unread}"
        self._answer: asyncio.Future[Sequence[dict[str, str]]] | None = None
        self._one_at_a_time, self._one_answer = asyncio.Lock(), asyncio.Lock()

    @property
    def anthropic_base_url(self) -> str:
        """The same server for an SDK that adds v1 to its paths."""
        return self.base_url.rstrip("/").removesuffix("/v1")

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables by which SDKs in any language find the policy, and programs the episode."""
        openai = {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_BASE": self.base_url, "OPENAI_API_KEY": self.api_key}
        anthropic = {"ANTHROPIC_BASE_URL": self.anthropic_base_url, "ANTHROPIC_API_KEY": self.api_key}
        models = {"OPENAI_MODEL": self.model, "ANTHROPIC_MODEL": self.model}
        return {**openai, **anthropic, **models, "SEAL_MCP_URL": self.mcp_url, "SEAL_TASK_URL": self.task_url}

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools that are available in this turn, as a chat-completion request takes them."""
        shown = self._require_native()["tools"][: self._turn + 1]
        documents = (
            {name: tool[name] for name in ("name", "description")} | {"parameters": with_json_types(tool["parameters"])}
            for tools in shown
            for tool in tools
        )
        return [{"type": "function", "function": document} for document in documents]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool; return its answer, an error's text included."""
        self._require_native()
        await self._in_turn(name, arguments)
        answers = await self._say("call", call_text(name, arguments, self._mode))
        return "\n".join(bare(message["content"]) for message in answers) if answers else ENDED

    async def user_messages(self) -> AsyncIterator[str]:
        """The user's messages, until the conversation ends; answer each before the next."""
        while self._unread is not None or not self.ended:
            if self._unread is None:
                raise RuntimeError("The user's message has no answer: await task.answer(text) before the next one.")
            yield self._read()

    async def answer(self, text: str) -> None:
        """Give the user an answer, which ends the turn, after the calls that are being made."""
        if self._unread is not None or self._one_answer.locked():
            raise RuntimeError("One answer for each message of the user: read the next one before you answer again.")
        async with self._one_answer:
            if follows := [bare(message["content"]) for message in await self.say(text)]:
                self._unread = "\n".join(follows)

    async def say(self, text: str) -> list[dict[str, str]]:
        """Give the environment a message of the policy as it is, calls included; return what follows, [] at the end."""
        return list(await self._say("message", text))

    async def fail(self, text: str) -> None:
        """End the rollout as the policy's failure, for a reason: its message cannot be used. What it did is judged."""
        self.events.put_nowait(Event("failed", clipped(text, MAX_REASON)))

    async def next_user_message(self, answer: Any) -> str:
        """`answer` and `user_messages` in one, for a policy too; ENDED after the last message."""
        await self._in_turn(USER, {"answer": answer})
        if answer and self._unread is not None:
            return "The user said something that you have not read: call this without an answer."
        if self._unread is None and not self.ended:
            if not isinstance(answer, str):
                return "The user waits: call this with your answer, a text."
            await self.answer(answer)
        return ENDED if self._unread is None else self._read()

    async def _in_turn(self, name: str, arguments: Mapping[str, Any]) -> None:
        if self.order is not None and self._native is not None:
            shown = self._native["tools"][: self._turn + 1]
            await self.order(name, arguments, (USER, *(tool["name"] for tools in shown for tool in tools)))

    def _read(self) -> str:
        message, self._unread = self._unread or "", None
        return message

    def hear(self, dialogue: Dialogue, ended: bool) -> None:
        """Pass on what the environment has said since."""
        self._turn, self.ended, self.waits = dialogue.turn, ended, False
        new, self._heard = dialogue.messages[self._heard + 1 :], len(dialogue.messages)  # the policy's comes first
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(() if ended else new)

    async def _say(self, kind: Literal["message", "call"], text: str) -> Sequence[dict[str, str]]:
        if not isinstance(text, str) or len(text) > MAX_TEXT:
            raise ValueError(f"A message to the environment must be text of at most {MAX_TEXT:,} characters.")
        text.encode()  # half of a surrogate pair is not text: ValueError
        async with self._one_at_a_time:
            if self._answer is not None:  # of a call that was given up: it is played, and no other call gets its answer
                await asyncio.wait([self._answer])
            if self.ended:
                return ()
            self._answer, self.waits = asyncio.get_running_loop().create_future(), True
            self.events.put_nowait(Event(kind, text))
            return await asyncio.shield(self._answer)

    def _require_native(self) -> Mapping[str, Any]:
        if self._native is None:
            raise ValueError(
                f"The prompt mode {self._mode} has no calls as JSON for an agent with tools: set "
                "env_service.prompt_mode to another one, or play the messages as text."
            )
        return self._native


def function(name: str) -> Callable[[Task], Awaitable[None]]:
    """The coroutine function that `module:function` names; ValueError if there is none."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # an agent beside the recipe need not be installed
    try:
        found = pkgutil.resolve_name(name) if ":" in name else None
    except (Exception, SystemExit) as error:  # the module can be any code
        raise ValueError(
            f"the harness {name!r} cannot be imported ({type(error).__name__}: {first_line(str(error))}): write "
            f"module:function, and install the module or put it into {os.getcwd()}."
        ) from error
    if not asyncio.iscoroutinefunction(found):
        raise ValueError(f"the harness {name!r} must be an async function, as my_agents.support:run, or a command.")
    return found


def require_harness(harness: Harness | None) -> None:
    """ValueError if the function cannot be imported or the program is not there; None names no harness."""
    if isinstance(harness, str):
        function(harness)
    elif harness is not None and shutil.which("".join(harness[:1])) is None:
        raise ValueError(
            f"the harness's program {' '.join(harness[:1])!r} is neither on the path nor a file as seen from "
            f"{os.getcwd()}: write [program, argument]."
        )


def call_text(name: str, arguments: Mapping[str, Any], mode: str | None = None) -> str:
    """A call as the default formats, or the prompt mode `native`, want it; escaped, so that no argument holds a tag."""
    if mode == NATIVE:
        return AGENT_FORMATS[NATIVE].render_call(name, arguments)
    call = json.dumps({"name": name, "arguments": dict(arguments)}).replace("<", "\\u003c")
    return f"<tool_call>\n{call}\n</tool_call>"


def bare(text: str) -> str:
    """An answer without the tags of the prompt format; the policy's own format adds its own."""
    if not text.startswith(_OPENING):
        return text
    body, _, cue = text.removeprefix(_OPENING).rpartition(_CLOSING)
    return body.strip("\n") + cue
