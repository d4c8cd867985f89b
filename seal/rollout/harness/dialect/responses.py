"""OpenAI's Responses, the dialect of its Agents SDK: POST v1/responses.

A request may name an earlier response and send only what is new: `keeps` says what a rollout has to remember.
"""

import json
import time
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import (
    AfterValidator,
    BeforeValidator,
    PositiveInt,
    PrivateAttr,
    Tag,
    TypeAdapter,
    ValidationInfo,
    model_validator,
)

from seal.rollout.harness import messages as inner
from seal.rollout.harness.dialect import wire
from seal.rollout.harness.dialect.wire import Absent, Asked, Choice, Content, Form, Given, Schema, Thought

_LOGPROBS = "message.output_text.logprobs"


class _Message(Given):
    role: Literal["developer", "system", "user", "assistant"]
    content: Content

    def item(self) -> inner.Item:
        if self.role == "assistant":
            return inner.Item(inner.ChatMessage(self.role, inner.without_thoughts(self.content)))
        return inner.Item(inner.ChatMessage("system" if self.role == "developer" else self.role, self.content))


class _Call(Given):
    call_id: str
    name: str
    arguments: str

    def item(self) -> inner.Item:
        return inner.Item(inner.ChatMessage("assistant", "", (wire.call(self.name, self.arguments),)), (self.call_id,))


class _Result(Given):
    call_id: str
    output: Content

    def item(self) -> inner.Item:
        return inner.Item(inner.ChatMessage("tool", self.output), answers=self.call_id)


class _Reference(Given):
    id: str


_Part = Annotated[
    Annotated[_Message, Tag("message")]
    | Annotated[_Call, Tag("function_call")]
    | Annotated[_Result, Tag("function_call_output")]
    | Annotated[Thought, Tag("reasoning")]
    | Annotated[_Reference, Tag("item_reference")],
    wire.by_type("message", "message", "function_call", "function_call_output", "reasoning", "item_reference"),
]
_OUTPUT = TypeAdapter(list[_Part])


def _heard(part: _Part, info: ValidationInfo) -> tuple[inner.Item, ...]:
    if isinstance(part, _Reference):
        return _kept(part.id, info)
    return () if isinstance(part, Thought) else (part.item(),)


def _kept(name: str, info: ValidationInfo) -> tuple[inner.Item, ...]:
    try:
        return info.context[name]
    except KeyError:
        raise ValueError(f"no answer of this rollout has the id {name:.80}: send the items themselves") from None


def _listed(given: Any) -> Any:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


class _Tool(Given):
    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: Schema | None = None


class Request(Asked):
    """What counts in a request for a response, and what is refused because the answer would mean something else.

    The context of its validation is what the rollout has kept.
    """

    input: Annotated[list[Annotated[_Part, AfterValidator(_heard)]], BeforeValidator(_listed)] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: tuple[_Tool, ...] | None = None
    max_output_tokens: PositiveInt | None = None
    include: tuple[str, ...] | None = None
    store: bool | None = None
    tool_choice: Choice = None
    text: Form | None = None
    background: Absent = None
    conversation: Absent = None
    prompt: Absent = None
    context_management: Absent = None
    _items: tuple[inner.Item, ...] = PrivateAttr()

    @model_validator(mode="after")
    def _whole(self, info: ValidationInfo) -> "Request":
        """Take up the earlier response, but not its instructions."""
        earlier = () if self.previous_response_id is None else _kept(self.previous_response_id, info)
        self._items = tuple(chain(earlier, *(self.input or ())))
        if not (self._items or self.instructions):
            raise ValueError("send input")
        return self

    def asked(self) -> inner.Request:
        """The request in the one form."""
        system = [inner.ChatMessage("system", self.instructions)] if self.instructions else []
        tools = {tool.name: wire.document(tool.name, tool.description, tool.parameters) for tool in self.tools or ()}
        messages = (*system, *inner.in_order(self._items))
        return inner.Request(messages, tools, self.max_output_tokens, _LOGPROBS in (self.include or ()))

    def body(self, answer: inner.Answer) -> dict[str, Any]:
        """The response."""
        status = "incomplete" if answer.cut else "completed"
        output: list[dict[str, Any]] = []
        if answer.text or not answer.calls:
            part: dict[str, Any] = {"type": "output_text", "text": answer.text, "annotations": []}
            if _LOGPROBS in (self.include or ()):
                part["logprobs"] = [
                    {"token": token, "logprob": value, "bytes": [*token.strip("\ufffd").encode()], "top_logprobs": []}
                    for token, value in answer.tokens
                ]
            said = {"type": "message", "role": "assistant", "status": status, "content": [part]}
            output.append({"id": f"msg_{uuid4().hex}", **said})
        for name, arguments in answer.calls:
            call = {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "status": status}
            output.append({"id": f"fc_{uuid4().hex}", "call_id": f"call_{uuid4().hex[:24]}", **call})
        prompt, new = answer.prompt, len(answer.tokens)
        usage = {"input_tokens": prompt, "output_tokens": new, "total_tokens": prompt + new}
        usage |= {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
        usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
        details = {"reason": "max_output_tokens"} if answer.cut else None
        tools = [{**tool.model_dump(), "strict": False} for tool in self.tools or ()]
        head = {"id": f"resp_{uuid4().hex}", "object": "response", "created_at": int(time.time()), "model": inner.MODEL}
        asked = {"instructions": self.instructions, "previous_response_id": self.previous_response_id, "tools": tools}
        fixed = {"error": None, "parallel_tool_calls": True, "tool_choice": "auto"}
        told = {"status": status, "incomplete_details": details, "output": output, "usage": usage}
        return {**head, **asked, **fixed, **told}

    def events(self, body: Mapping[str, Any]) -> bytes:
        """A response as the server-sent events of a streamed one, each item in one piece."""
        begun = {**body, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        told = [{"type": f"response.{name}", "response": begun} for name in ("created", "in_progress")]
        for index, item in enumerate(body["output"]):
            told += _told(item, index)
        told.append({"type": f"response.{body['status']}", "response": body})
        return wire.events(*({**each, "sequence_number": number} for number, each in enumerate(told)))

    def keeps(self, body: Mapping[str, Any]) -> dict[str, tuple[inner.Item, ...]]:
        """What later requests may name: the response with all before it, and each of its items."""
        if self.store is False:
            return {}
        items = [part.item() for part in _OUTPUT.validate_python(body["output"])]
        named = zip((item["id"] for item in body["output"]), ((item,) for item in items), strict=True)
        return {body["id"]: (*self._items, *items), **dict(named)}


def _told(item: Mapping[str, Any], index: int) -> Iterator[dict[str, Any]]:
    """The events of one item of the output."""
    place, at = {"output_index": index}, {"output_index": index, "item_id": item["id"]}
    begun = {"status": "in_progress"} | ({"content": []} if item["type"] == "message" else {"arguments": ""})
    yield {"type": "response.output_item.added", "item": {**item, **begun}, **place}
    if item["type"] == "message":
        [part] = item["content"]
        at, tokens = {**at, "content_index": 0}, {"logprobs": part.get("logprobs", [])}
        yield {"type": "response.content_part.added", "part": {**part, "text": "", "logprobs": []}, **at}
        yield {"type": "response.output_text.delta", "delta": part["text"], **tokens, **at}
        yield {"type": "response.output_text.done", "text": part["text"], **tokens, **at}
        yield {"type": "response.content_part.done", "part": part, **at}
    else:
        done = {"arguments": item["arguments"], "name": item["name"]}
        yield {"type": "response.function_call_arguments.delta", "delta": item["arguments"], **at}
        yield {"type": "response.function_call_arguments.done", **done, **at}
    yield {"type": "response.output_item.done", "item": item, **place}
