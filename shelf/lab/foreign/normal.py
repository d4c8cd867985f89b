"""Messages and calls with other programs' names, converted to the form of OpenAI's and Anthropic's API.

What is not understood raises ValueError, so that its row is left out: it never becomes an empty message or failed call.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from env_service.environments.kit.contents import is_data
from seal.system.jsonl import flaw
from shelf.error_marks import states_error
from shelf.suites.answers import BROKEN, FILTERED, LENGTH

Row = Mapping[str, Any]
ROLES = {
    name: role
    for role, names in {
        "system": "system systemmessage",
        "developer": "developer",
        "user": "user human humanmessage",
        "assistant": "assistant ai aimessage aimessagechunk model gpt chatbot bot function_call",
        "tool": "tool tools toolmessage tool_result tool_results tool_response tool-response observation",
        "function": "function functionmessage",
        "ipython": "ipython",
    }.items()
    for name in names.split()
}
"""The roles by the names that LangChain, ShareGPT, Gemini, Cohere, Llama and others use."""
CALL_NAMES = ("name", "function_name", "toolName", "tool_name", "tool")
CALL_ARGUMENTS = (
    "arguments", "args", "input", "parameters", "kwargs", "tool_kwargs", "tool_args", "tool_input", "toolInput",
    "params",
)  # fmt: skip
CALL_IDS = ("call_id", "tool_call_id", "toolCallId", "toolUseId", "id")
_ANSWERED = (*CALL_IDS[1:-1], "tool_use_id")
"""Keys of a result that name its call."""
_WITHIN = ("function", "custom", "functionCall", "function_call", "toolUse", "tool_call")
"""Keys that hold the name and the arguments of a call."""
_RESULTS_WITHIN = ("functionResponse", "function_response", "toolResult")
TOOL_ROLES = ("tool", "function", "ipython")
_CALL_PARTS = ("tool_call", "tool-call", "toolCall", "function_call")
_RESULT_PARTS = ("tool_call_response", "tool-result", "tool_response", "function_response")
_THOUGHT_PARTS = ("thinking", "redacted_thinking", "reasoning")
_THOUGHTS = ("thought", "reasoningContent")
_BESIDE = {
    "role", "from", "type", "id", "name", "index", "status", "given", "error", "tool_call_id", "requestor",
    "reasoning", "reasoning_content", "thinking", "reasoning_details", "thinking_blocks", "thought",
    "additional_kwargs", "response_metadata", "usage_metadata", "usage", "metadata", "extra", "model", "created",
    "timestamp", "finish_reason", "stop_reason", "logprobs", "token_ids", "cost", "cache_control", "raw_data", "uuid",
    "tool_plan", "content", "meta", "provider_specific_fields", "annotations", "source", "block_type",
}  # fmt: skip
"""Keys of a message that hold nothing of what it says."""
_OF_RESULT = {*CALL_NAMES, *CALL_IDS, *_ANSWERED, "structuredContent", "structured_content", "tool_messages"}
CUT_ENDS = re.compile(f"{LENGTH.pattern}|{FILTERED.pattern}|{BROKEN.pattern}|interrupt|repetition")
"""Endpoints' reasons for the end of an answer that a limit, a filter or a failure of theirs cut, in lower case."""
EMPTY_ENDS = re.compile(rf"$|stop|end_turn|.*({LENGTH.pattern})")
"""Endpoints' reasons for the end of an answer, with which an answer may be empty."""
_NOTHING = object()
_MAY_CALL = re.compile("(?<![a-z])(?:tool_?)?(?:call|tool|action|function)|recipient", re.IGNORECASE)


def role_of(role: str) -> str:
    """The role's name in OpenAI's form; ValueError for an unknown role."""
    if (known := ROLES.get(role.strip().lower())) is None:
        raise ValueError(f"role is {role!r:.40}: system, user, assistant or tool is expected")
    return known


def message_of(value: Any) -> Any:
    """A message with role, content, calls, its call's id, and its failure; a value of another type is unchanged."""
    if not isinstance(value, Mapping):
        return value
    for key in ("kwargs", "data"):  # LangChain's two ways to write a message
        if isinstance(inner := value.get(key), Mapping) and "role" not in value and "content" not in value:
            path = value.get("id")
            kind = path[-1] if key == "kwargs" and isinstance(path, list) and path else value.get("type")
            return message_of({"type": kind, **inner})
    role = value.get("role", value.get("from"))
    if role is None and str(value.get("type")).lower() in ROLES:
        role = value["type"]
    if not isinstance(role, str):
        return value
    found = {**value, "role": role_of(role)}
    content = _first(value, ("content", "parts", "blocks", "value", "refusal"), None)
    if isinstance(content, Mapping) and isinstance(content.get("parts"), list):
        content = content["parts"]
    if isinstance(content, Mapping) and isinstance(content.get("type"), str):
        content = [content]  # MCP's form
    if content is None and isinstance(value.get("message"), str):
        content = value["message"]
    if found["role"] in TOOL_ROLES:
        several = value.get("tool_responses") or value.get("tool_results")  # AutoGen's and Cohere's keys
        if isinstance(several, list) and all(isinstance(each, Mapping) for each in several):
            content = [_result_of(each) for each in several]
        elif content is None:
            content = _result_of(value)["content"]
    if isinstance(content, list):
        content = [_part_of(part, found["role"] in TOOL_ROLES) for part in content]
    more = value["additional_kwargs"] if isinstance(value.get("additional_kwargs"), Mapping) else {}
    calls = [*_listed(value.get("tool_calls")), *_listed(value.get("invalid_tool_calls"))]
    calls = calls or _listed(more.get("tool_calls"))  # which LangChain keeps beside both
    calls = calls or _listed(value.get("function_call")) or _listed(more.get("function_call"))
    if role.strip().lower() == "function_call":  # ShareGPT's
        content, calls = None, _listed(content)
    known = [call_of(call)["id"] for call in calls if isinstance(call, Mapping)]
    if isinstance(content, list):  # LangChain also keeps Anthropic's calls in the parts
        uses = [isinstance(part, Mapping) and str(part.get("type")).endswith("tool_use") for part in content]
        content = [part for part, use in zip(content, uses, strict=True) if not (use and _id(part.get("id")) in known)]
    found["error"] = _failure(value)
    acts = found["role"] == "assistant"
    if not calls and (acts or (content is None and not found.get("error"))):
        known = _BESIDE if acts else _BESIDE | _OF_RESULT
        beside = [key for key in value if key not in known and isinstance(value[key], str | list | dict) and value[key]]
        # A field beside a text may hold a call; without a text, such fields are all that was said.
        if unread := [key for key in beside if not content or (_MAY_CALL.search(str(key)) and holds(value[key]))]:
            raise ValueError(f"a message of the {found['role']} holds what is not read, {', '.join(map(str, unread))}")
    told = {**value, **more}  # LlamaIndex
    answers = next((told[key] for key in _ANSWERED if told.get(key) is not None), None)
    found |= {"tool_call_id": _id(answers)} if answers is not None else {}
    found |= {"name": told.get("name") or told.get("tool_name"), "cut": bool(CUT_ENDS.search(end_of(value)))}
    return {**found, "content": content, "tool_calls": calls}


def end_of(answer: Row) -> str:
    """The reason for the end of an endpoint's answer, in lower case; "" without one."""
    names = ("finish_reason", "finishReason", "stop_reason", "stopReason")
    every = [each for each in (answer, answer.get("response_metadata")) if isinstance(each, Mapping)]  # LangChain's
    return next((str(each[name]).lower() for each in every for name in names if each.get(name)), "")


def call_of(value: Any) -> Any:
    """A call as an object with id, name, arguments and type; ValueError for a call with unknown keys."""
    if not isinstance(value, Mapping):
        return value
    if isinstance(function := value.get("function"), str) and function.startswith("{"):
        value = {**value, "function": decoded("a function", function)}
    inner = next((value[key] for key in _WITHIN if isinstance(value.get(key), Mapping)), None)
    flat = dict(value) if inner is None else {**{key: value.get(key) for key in CALL_IDS}, **inner}
    name = _first(flat, (*CALL_NAMES, *(("function",) if isinstance(flat.get("function"), str) else ())))
    if name is _NOTHING:
        raise ValueError(f"a call has no name, but {', '.join(map(str, flat)) or 'nothing'}")
    arguments = _first(flat, CALL_ARGUMENTS)
    if arguments is _NOTHING:
        if unread := [key for key in flat if key not in (*CALL_NAMES, *CALL_IDS, "type", "index", "function")]:
            raise ValueError(f"a call of {name} has no arguments, but {', '.join(map(str, unread))}")
        arguments = None
    if isinstance(value.get("parse_error"), str):  # Inspect's, which writes {} for arguments that it could not read
        arguments = value["parse_error"]
    given = _first(flat, CALL_IDS)
    return {"id": _id(given), "name": name, "arguments": arguments, "type": value.get("type")}


def _id(given: Any) -> Any:
    """The id that pairs a call with its result: a text, which some programs write as a number."""
    return str(given) if isinstance(given, int) else None if given is _NOTHING else given


def _first(value: Row, keys: Sequence[str], nothing: Any = _NOTHING) -> Any:
    """The first of the keys' values that is not null; null if all are null, `nothing` if no key is present."""
    there = [value[key] for key in keys if key in value]
    return next((each for each in there if each is not None), None if there else nothing)


def _listed(calls: Any) -> list[Any]:
    """Calls as a list, without the empty calls that pad a table."""
    calls = decoded("tool_calls", calls) if isinstance(calls, str) else calls
    return [each for each in (calls if isinstance(calls, list | tuple) else [calls]) if holds(each)]


def holds(value: Any) -> bool:
    """Whether a value holds anything of a call or of calls, besides their type and index."""
    if isinstance(value, Mapping):
        return any(holds(each) for key, each in value.items() if key not in ("type", "index"))
    return any(map(holds, value)) if isinstance(value, list) else value not in (None, "", "[]", "{}", "null")


def _failure(value: Row) -> Any:
    """What a result says about its failure: its error, or True; False if it says nothing or denies one."""
    said = next((value[key] for key in ("error", "is_error", "isError") if value.get(key) is not None), None)
    return value.get("status") == "error" if said is None else states_error(said) and said


def _part_of(part: Any, of_result: bool = False) -> Any:
    """A part of a content: text, Anthropic's `tool_use` or `tool_result`, a thought without its text, or another."""
    if not isinstance(part, Mapping):
        return part
    kind = part.get("type", part.get("block_type"))
    if not of_result and (any(part.get(key) for key in _THOUGHTS) or kind in _THOUGHT_PARTS):
        return {"type": kind if kind in _THOUGHT_PARTS else "thinking"}
    within = next((key for key in (*_WITHIN, *_RESULTS_WITHIN) if isinstance(part.get(key), Mapping)), "")
    if kind in _RESULT_PARTS or within in _RESULTS_WITHIN:
        return _result_of(part[within] if within else part)
    if kind == "text" and isinstance(part.get("content"), str) and "text" not in part:
        return {"type": "text", "text": part["content"]}
    if of_result:  # a part of a result calls nothing, whatever its keys are
        return part
    if kind in _CALL_PARTS or within:
        return {**call_of(part), "type": "tool_use"}
    if kind is None or "type" not in part:  # Bedrock, Gemini and LlamaIndex name a kind by its key
        held = [key for key, each in part.items() if each and (isinstance(each, Mapping) or is_data({"type": key}))]
        return {**part, "type": held[0]} if held and not isinstance(part.get("text"), str) else part
    if re.search("tool|call", str(kind), re.IGNORECASE) and not str(kind).endswith(("tool_use", "tool_result")):
        raise ValueError(f"a part of type {kind} is not read: write the call in tool_calls")
    return part


def _result_of(value: Row) -> dict[str, Any]:
    content = _first(value, ("response", "result", "output", "outputs", "content"), None)
    error = _failure(value)
    kind = content.get("type") if isinstance(content, Mapping) and "value" in content else None
    if kind in ("text", "json", "content", "error-text", "error-json"):  # the AI SDK's form
        error, content = kind.startswith("error") or error, content["value"]
    if isinstance(content, list):
        content = [each["json"] if isinstance(each, Mapping) and "json" in each else each for each in content]
    given = _first(value, CALL_IDS)
    named = {} if given is _NOTHING else {"tool_use_id": _id(given)}
    return {"type": "tool_result", "content": content, "is_error": error, "name": value.get("name"), **named}


def decoded(what: str, text: str) -> Any:
    """The JSON value of a text, None for an empty text; ValueError that names `what` if the text is not JSON."""
    try:
        return json.loads(text) if text.strip() else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is text and no JSON: {flaw(error)}") from error
