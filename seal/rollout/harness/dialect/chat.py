"""Chat completions, the dialect of most agent SDKs: POST v1/chat/completions."""

import json
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import uuid4

from annotated_types import Len
from pydantic import AfterValidator, PositiveInt

from seal.rollout.harness import messages as inner
from seal.rollout.harness.dialect.wire import Absent, Asked, Choice, Content, Given, Schema, as_text, call, document


class _Function(Given):
    name: str
    arguments: str


class _Call(Given):
    type: Literal["function"] | None = None
    function: _Function
    id: Any = None

    def meaning(self) -> tuple[Any, tuple[str, Any]]:
        return self.id, call(self.function.name, self.function.arguments)


class _Message(Given):
    role: Literal["developer", "system", "user", "assistant", "tool"]
    content: Content = ""
    tool_calls: tuple[Annotated[_Call, AfterValidator(_Call.meaning)], ...] | None = None
    tool_call_id: Any = None
    function_call: Absent = None
    refusal: Absent = None
    audio: Absent = None

    def item(self) -> inner.Item:
        text = inner.without_thoughts(self.content) if self.role == "assistant" else self.content
        ids, calls = zip(*self.tool_calls, strict=True) if self.tool_calls else ((), ())
        role = "system" if self.role == "developer" else self.role
        return inner.Item(inner.ChatMessage(role, text, calls), ids, self.tool_call_id)


class _Document(Given):
    name: str
    description: str | None = None
    parameters: Schema | None = None


class _Tool(Given):
    type: Literal["function"] | None = None
    function: _Document


class Request(Asked):
    """What counts in a chat-completion request, and what is refused because the answer would mean something else."""

    messages: Annotated[tuple[_Message, ...], Len(1)]
    tools: tuple[_Tool, ...] | None = None
    n: Literal[1] | None = None
    max_tokens: PositiveInt | None = None
    max_completion_tokens: PositiveInt | None = None
    logprobs: bool | None = None
    stream_options: dict[str, Any] | None = None
    tool_choice: Choice = None
    response_format: Annotated[Any, AfterValidator(as_text)] = None
    functions: Absent = None
    audio: Absent = None
    web_search_options: Absent = None

    def asked(self) -> inner.Request:
        """The request in the one form."""
        tools = [each.function for each in self.tools or ()]
        return inner.Request(
            inner.in_order(message.item() for message in self.messages),
            {tool.name: document(tool.name, tool.description, tool.parameters) for tool in tools},
            self.max_completion_tokens or self.max_tokens,
            bool(self.logprobs),
        )

    def body(self, answer: inner.Answer) -> dict[str, Any]:
        """The chat completion."""
        functions = ({"name": name, "arguments": json.dumps(arguments)} for name, arguments in answer.calls)
        calls = [{"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": each} for each in functions]
        said = {"role": "assistant", "content": answer.text} | ({"tool_calls": calls} if calls else {})
        reason = "length" if answer.cut else "tool_calls" if answer.calls else "stop"
        choice: dict[str, Any] = {"index": 0, "message": said, "finish_reason": reason}
        tokens = [{"token": token, "logprob": value, "top_logprobs": []} for token, value in answer.tokens]
        choice |= {"logprobs": {"content": tokens}} if self.logprobs else {}
        prompt, new = answer.prompt, len(answer.tokens)
        usage = {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}
        head = {"id": f"chatcmpl-{uuid4().hex}", "object": "chat.completion", "created": int(time.time())}
        return {**head, "model": inner.MODEL, "choices": [choice], "usage": usage}

    def events(self, body: Mapping[str, Any]) -> bytes:
        """A completion as the events of a streamed one: text, each call, end and usage apart, as OpenAI's SDKs want."""
        [choice] = body["choices"]
        said, end = choice["message"], choice["finish_reason"]
        calls = ({"tool_calls": [{"index": index, **call}]} for index, call in enumerate(said.get("tool_calls", ())))
        deltas = [{"role": "assistant", "content": said["content"]}, *calls, {}]
        told = [{"index": 0, "delta": each, "finish_reason": None if each else end} for each in deltas]
        told[0] |= {"logprobs": choice.get("logprobs")}
        chunks = [{**body, "object": "chat.completion.chunk", "choices": [each], "usage": None} for each in told]
        if (self.stream_options or {}).get("include_usage"):
            chunks.append({**chunks[0], "choices": [], "usage": body["usage"]})
        return "".join(f"data: {each}\n\n" for each in (*map(json.dumps, chunks), "[DONE]")).encode()
