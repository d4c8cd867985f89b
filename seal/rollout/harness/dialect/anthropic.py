"""Anthropic's Messages, the dialect of its SDKs: POST v1/messages."""

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Annotated, Any, Literal
from uuid import uuid4

from annotated_types import Len
from pydantic import AfterValidator, BeforeValidator, PositiveInt, Tag
from pydantic_core import PydanticCustomError

from seal.rollout.harness import messages as inner
from seal.rollout.harness.dialect import wire
from seal.rollout.harness.dialect.wire import Absent, Asked, Choice, Content, Form, Given, Schema, Thought

_ERRORS = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error"}
_BILLING = "x-anthropic-billing-header:"


class _Text(Given):
    text: str


class _Call(Given):
    id: str
    name: str
    input: dict[str, Any]


class _Result(Given):
    tool_use_id: str
    content: Content = ""
    is_error: bool | None = None

    def item(self) -> inner.Item:
        text = self.content or ("Error" if self.is_error else "")
        return inner.Item(inner.ChatMessage("tool", text), answers=self.tool_use_id)


_Block = Annotated[
    Annotated[_Text, Tag("text")]
    | Annotated[_Call, Tag("tool_use")]
    | Annotated[_Result, Tag("tool_result")]
    | Annotated[Thought, Tag("thinking")]
    | Annotated[Thought, Tag("redacted_thinking")],
    wire.by_type(None, "text", "tool_use", "tool_result", "thinking", "redacted_thinking"),
]


def _listed(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class _Message(Given):
    role: Literal["system", "user", "assistant"]
    content: Annotated[list[_Block], BeforeValidator(_listed)]

    def items(self) -> tuple[inner.Item, ...]:
        """One message of the policy, or the tools' answers and the user's texts in their order."""
        blocks = self.content
        known = (_Text, _Call, Thought) if self.role == "assistant" else (_Text, _Result)
        if not all(isinstance(block, known) for block in blocks):
            raise ValueError("calls and thoughts are the assistant's, and their results the user's")
        if not blocks and self.role != "assistant":
            raise ValueError("content must not be empty")
        if self.role == "assistant":
            calls = [block for block in blocks if isinstance(block, _Call)]
            text = inner.without_thoughts(_text(blocks))
            said = inner.ChatMessage(self.role, text, tuple(inner.meaning(each.name, each.input) for each in calls))
            return (inner.Item(said, tuple(each.id for each in calls)),)
        return tuple(
            item
            for kind, run in groupby(blocks, key=type)
            for item in (
                [each.item() for each in run]
                if kind is _Result
                else [inner.Item(inner.ChatMessage(self.role, _text(run, "\n" if self.role == "user" else "")))]
            )
        )


def _text(blocks: Iterable[_Block], between: str = "") -> str:
    return between.join(block.text for block in blocks if isinstance(block, _Text))


class _Tool(Given):
    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: Schema


def _whole(edits: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    if not all(str(edit.get("type")).startswith("clear_thinking") for edit in edits or ()):
        raise ValueError("the policy reads the history that it is sent, without thoughts: leave it out")
    return edits


class _Management(Given):
    edits: Annotated[list[dict[str, Any]] | None, AfterValidator(_whole)] = None


def _no_thread(thread: Any) -> Any:
    if thread:  # by this code the SDK's tool runner knows that it must send the history
        raise PydanticCustomError("thread_unsupported_request", "the gateway keeps no threads: send the whole history")
    return thread


def _for_the_policy(system: Any) -> Any:
    """Leave out what Claude Code tells only its provider: a text that differs in each request and is not repeated."""
    if not isinstance(system, list):
        return system
    return [each for each in system if not (isinstance(each, dict) and str(each.get("text")).startswith(_BILLING))]


class Request(Asked):
    """What counts in a request for a message, and what is refused because the answer would mean something else."""

    messages: Annotated[tuple[Annotated[_Message, AfterValidator(_Message.items)], ...], Len(1)]
    system: Annotated[Content, BeforeValidator(_for_the_policy)] = ""
    tools: tuple[_Tool, ...] | None = None
    max_tokens: PositiveInt | None = None
    tool_choice: Choice = None
    output_config: Form | None = None
    output_format: Annotated[Any, AfterValidator(wire.as_text)] = None
    mcp_servers: Absent = None
    container: Absent = None
    compaction: Absent = None
    context_management: _Management | None = None
    thread: Annotated[Any, AfterValidator(_no_thread)] = None

    def asked(self) -> inner.Request:
        """The request in the one form."""
        system = [inner.ChatMessage("system", self.system)] if self.system else []
        said = inner.in_order(item for items in self.messages for item in items)
        tools = {tool.name: wire.document(tool.name, tool.description, tool.input_schema) for tool in self.tools or ()}
        return inner.Request((*system, *said), tools, self.max_tokens)

    def body(self, answer: inner.Answer) -> dict[str, Any]:
        """The message."""
        said = [{"type": "text", "text": answer.text}] if answer.text or not answer.calls else []
        calls = (
            {"type": "tool_use", "id": f"toolu_{uuid4().hex[:24]}", "name": name, "input": arguments}
            for name, arguments in answer.calls
        )
        reason = "max_tokens" if answer.cut else "tool_use" if answer.calls else "end_turn"
        head = {"id": f"msg_{uuid4().hex}", "type": "message", "role": "assistant", "model": inner.MODEL}
        usage = {"input_tokens": answer.prompt, "output_tokens": len(answer.tokens)}
        return {**head, "content": [*said, *calls], "stop_reason": reason, "stop_sequence": None, "usage": usage}

    def events(self, body: Mapping[str, Any]) -> bytes:
        """A message as the server-sent events of a streamed one, each block in one piece."""
        start = {**body, "content": [], "stop_reason": None, "usage": {**body["usage"], "output_tokens": 0}}
        told: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
        for index, block in enumerate(body["content"]):
            if block["type"] == "text":
                empty, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
            else:
                empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            told += (
                {"type": "content_block_start", "index": index, "content_block": block | empty},
                {"type": "content_block_delta", "index": index, "delta": delta},
                {"type": "content_block_stop", "index": index},
            )
        end = {name: body[name] for name in ("stop_reason", "stop_sequence")}
        told.append({"type": "message_delta", "delta": end, "usage": body["usage"]})
        return wire.events(*told, {"type": "message_stop"})


def error(status: int, sentence: str, code: str | None) -> dict[str, Any]:
    """A refusal in the shape that Anthropic's SDKs read."""
    details = {"error_code": code} if code else None
    kind = _ERRORS.get(status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": sentence, "details": details}}
