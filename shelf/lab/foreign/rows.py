"""Rows of other programs, converted to the names that the readers know, with JSON decoded and the answer in place."""

import json
from collections.abc import Mapping
from typing import Any

from shelf.lab.foreign.normal import CUT_ENDS, EMPTY_ENDS, TOOL_ROLES, Row, decoded, end_of, message_of

_ROW_KEYS = {
    "traj": "messages",
    "conversations": "messages",
    "conversation": "messages",
    "gen_ai.input.messages": "messages",
    "gen_ai.output.messages": "output",
    "gen_ai.tool.definitions": "tools",
    "gen_ai.system_instructions": "system",
    "error_str": "error",
    "contents": "messages",
    "toolConfig": "tools",
    "systemInstruction": "system",
    "system_instruction": "system",
    "inputs": "input",
}
"""Names of a row's fields in tau-bench, ShareGPT, OpenTelemetry, LiteLLM, Gemini and Bedrock."""
_TEXT_KEYS = ("messages", "tools", "tool_defs", "functions", "info")
"""Fields that are never plain text, so that a text there is JSON."""
_REQUESTS = ("request", "request_body", "body", "input", "inputs", "kwargs", "model_parameters", "optional_params")
_ANSWERS = ("choices", "response", "response_body", "completion", "output", "outputs", "candidates", "message")
_DIALOGUES = ("prompt", "request", "input", *_ANSWERS)
ITEMS = ("message", "mcp_list_tools", "reasoning")
"""Types of the Responses API's items, besides those with the endings below."""
_ITEM_ENDS = ("_call", "_call_output")
_ASKS = ("system", "developer", "user")
_SAYS = ("content", "parts", "tool_calls", "function_call", "refusal", "text")
_SPOKEN = {"role", "choices", "from", "message", "messages", "contents", "candidates"}


def row_of(value: Row) -> dict[str, Any]:
    """A row with the names that the readers know, with JSON text decoded, the answer in place, and no nulls."""
    attributes = value.get("attributes")
    if isinstance(attributes, Mapping) and any(str(key).startswith("gen_ai.") for key in attributes):
        value = {**value, **attributes}
    row = _renamed(value)
    for key in _TEXT_KEYS:
        if isinstance(row.get(key), str) and (found := decoded(key, row.pop(key))) is not None:
            row[key] = found
    row |= {key: _dialogue(row[key]) for key in _DIALOGUES if isinstance(row.get(key), str)}
    if isinstance(said := row.get("messages"), list) and len(said) == 1 and isinstance(said[0], list):
        said = row["messages"] = said[0]  # LangChain's batch of one
    kinds = [str(each.get("type")) for each in (said if isinstance(said, list) else ()) if isinstance(each, Mapping)]
    if any(kind.endswith(_ITEM_ENDS[1]) for kind in kinds):  # items, as OpenAI's Agents SDK lists them
        asked = (isinstance(each, Mapping) and each.get("role") in _ASKS for each in said)
        own = next((at for at, asks in enumerate(asked) if not asks), len(said))
        del row["messages"]
        return _of_responses({**row, "input": said[:own], "output": said[own:]})
    for key in _REQUESTS:
        request = row.get(key)
        if isinstance(request, Mapping):
            request = _renamed(request["body"] if isinstance(request.get("body"), Mapping) else request)
            for name in ("messages", "tools", "functions", "system", "input", "prompt", "instructions"):
                if name in request:
                    row.setdefault(name, request[name])
            if key.startswith("request") and not {"messages", "input", "prompt"} & row.keys():
                raise ValueError(f"its {key} has no messages, but {', '.join(map(str, request)) or 'nothing'}")
    response = row["response"] if isinstance(row.get("response"), Mapping) else row
    if _items(response.get("output")) or _items(row.get("output")) or response.get("object") == "response":
        return _of_responses(row)
    if not (isinstance(row.get("message"), Mapping) and "role" in row["message"]):
        row.pop("message", None)  # a remark about the row
    _note_cut(row, row)
    if "messages" in row:
        row.pop("prompt", None)  # the first of the messages
        return _with_answer(row)
    answers = _ANSWERS if "prompt" in row else _ANSWERS[:-1]  # a line with one message is not a rollout
    if key := next((key for key in answers if _is_answer(row.get(key))), ""):
        row["completion"] = answer_of(row[key], row)
        row.setdefault("prompt", row.get("input", []))
    return row


def _renamed(value: Row) -> dict[str, Any]:
    """A row or a request with the names that the readers know, without nulls."""
    row = {key: found for key, found in value.items() if found is not None}
    for name, known in _ROW_KEYS.items():
        if known not in row and name in row:
            row[known] = row.pop(name)
    return row


def _is_answer(value: Any) -> bool:
    """True for the answer of an endpoint, False for text or messages."""
    listed = value if isinstance(value, list) else ()
    choices = [isinstance(each, Mapping) and not {"role", "from", "type"} & each.keys() for each in listed]
    return isinstance(value, Mapping) or (bool(choices) and all(choices))


def _dialogue(text: str) -> Any:
    """The messages or the answer in a JSON text; any other text stays as it is, since a policy may write JSON."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    listed = value if isinstance(value, list) else [value]
    written = [isinstance(each, Mapping) and _SPOKEN & each.keys() for each in listed]
    return value if written and all(written) else text


def _items(value: Any) -> bool:
    """True for a list of items of the Responses API."""
    listed = isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value)
    return bool(listed) and all(
        each.get("type") in ITEMS or str(each.get("type")).endswith(_ITEM_ENDS) for each in value
    )


def _of_responses(row: dict[str, Any]) -> dict[str, Any]:
    """A request and its Responses object in the form that NeMo Gym writes."""
    if "responses_create_params" in row:
        return row
    response = row["response"] if isinstance(row.get("response"), Mapping) else row
    asked = row.get("input", row.get("prompt", row.get("messages", [])))
    asked = asked.get("messages", []) if isinstance(asked, Mapping) else asked
    asked = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    if not isinstance(asked, list):
        raise ValueError(f"input is {asked!r:.40}: a text or messages are expected")
    told = row.get("instructions") or response.get("instructions")
    asked = [*([{"role": "system", "content": told}] if isinstance(told, str) and told else []), *asked]
    tools = row.get("tools", response.get("tools"))
    return {**row, "responses_create_params": {"input": asked, "tools": tools}, "response": response}


def _with_answer(row: dict[str, Any]) -> dict[str, Any]:
    """A row of messages, to which the answer beside them is added if they do not contain it."""
    key = next((key for key in _ANSWERS if row.get(key) not in (None, "", [], {})), None)
    messages = row["messages"]
    if isinstance(messages, list) and messages and isinstance(messages[-1], Mapping):
        _note_cut(messages[-1], row)
    if key is None or not isinstance(messages, list) or row.get("error"):
        return row
    answer = answer_of(row[key], row)
    own = [message_of(each) for each in messages]
    said = [_said(each) for each in own]
    while said and said[-1][0] in TOOL_ROLES:
        said.pop()  # a result of the answer's calls
    if said[-len(answer) :] == [_said(message_of(each)) for each in answer]:
        return row
    if isinstance(row[key], str) and own and isinstance(own[-1], Mapping) and own[-1].get("role") == "assistant":
        return {**row, "apart": key}  # the dialogue is complete, and this field says something about it
    return {**row, "messages": [*messages, *answer]}


def _said(message: Any) -> Any:
    known = message if isinstance(message, Mapping) else {}
    return [known.get(key) or None for key in ("role", "content", "tool_calls")]


def _note_cut(answer: Row, row: dict[str, Any]) -> str:
    """The reason for the end of an endpoint's answer, "" without one. row: records if the answer was cut."""
    if CUT_ENDS.search(reason := end_of(answer)):
        row["is_truncated"] = True
    return reason


def answer_of(value: Any, row: dict[str, Any]) -> list[Any]:
    """The messages of an endpoint's answer. row: records a cut. ValueError for an unknown form or several answers."""
    if isinstance(value, str):
        return [{"role": "assistant", "content": value}]
    if isinstance(value, Mapping):
        _note_cut(value, row)
        for key in ("body", "choices", "candidates", "output", "message"):
            if value.get(key) and isinstance(value[key], list | Mapping):
                return answer_of(value[key], row)
        if isinstance(text := value.get("text"), str) and "role" not in value:
            return [{"role": "assistant", "content": text, "tool_calls": value.get("tool_calls")}]
        if {"content", "parts", "tool_calls"} & value.keys():
            return [{"role": "assistant", **value}]
    if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        if all("role" in each or "from" in each for each in value):
            return list(value)
        if all("type" in each and "message" not in each for each in value):  # Anthropic's parts
            return [{"role": "assistant", "content": value}]
        if len(value) > 1:
            raise ValueError(f"has {len(value)} answers: one is expected")
        choice = value[0]
        reason = _note_cut(choice, row)
        said = choice.get("message", choice.get("content", choice))
        if isinstance(said, Mapping) and not (EMPTY_ENDS.match(reason) or any(map(said.get, _SAYS))):
            raise ValueError(f"its answer is empty, and its end is {reason}")
        if isinstance(choice.get("content"), Mapping):
            return [{"role": "assistant", **choice["content"]}]
        return answer_of({key: choice[key] for key in ("message", "text") if key in choice}, row)
    raise ValueError(f"its answer is {json.dumps(value, default=str):.60}: a text or messages are expected")
