"""What an endpoint's answer means: a message, a refusal, a dialogue that is too long, a field that it does not accept.

Endpoints word the same thing in different ways, so kinds are recognised by words, not by a vendor's codes.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion import Choice

from seal.rollout.speaker import SpeakerFault
from seal.system.text import one_line
from shelf.error_marks import states_error


class EndpointFault(SpeakerFault):
    """The endpoint gave no usable answer to one request; cause names the kind."""

    def __init__(self, cause: str, message: str):
        super().__init__(cause, one_line(message).encode("utf-8", "replace").decode())  # as a log can hold it


class RequestRefused(EndpointFault):
    """The model, or a filter before or after it, refuses to answer this one request."""

    def __init__(self, message: str):
        super().__init__("refusal", message)


class CallRejected(EndpointFault):
    """The endpoint rejects a request because of its messages, for example a call that it cannot read again."""


class EndpointRefused(RuntimeError):
    """The endpoint will refuse every request; the text says what to change."""


class ContextExceeded(RuntimeError):
    """The dialogue does not fit the model's context."""


class Reply(NamedTuple):
    """One assistant message; truncated if a length limit cut it.

    tokens and prompt_tokens are the endpoint's own counts, or 0. calls: the entries of `tool_calls`, if the request
    offered tools. thoughts: the message's fields that hold them.
    """

    text: str
    truncated: bool
    tokens: int
    prompt_tokens: int = 0
    calls: tuple[Mapping[str, Any], ...] = ()
    thoughts: Mapping[str, Any] = MappingProxyType({})


REQUEST_STATUSES = frozenset({400, 403, 413, 422, 451})
"""Statuses that may concern only one request: its length, its words, one of its fields."""

_TOO_LONG = re.compile(
    r"context.{0,40}(length|size|window|limit|exceed|overflow)|(exceed|longer|larger|overflow).{0,60}context"
    r"|(prompt|inputs?|messages|sequence|total)\b.{0,80}(too (long|large)|longer than|exceed(s|ed)?\b|must be <=)"
    r"|only supports up to|request\b.{0,20}(too large|exceeds)|less than \d+ tokens|token limit"
    r"|too many (input )?tokens|range of input length|reduce the length|max_model_len|max_seq_len"
    r"|maximum (prompt|input|model|sequence) length|超长|长度超",
    re.IGNORECASE | re.DOTALL,
)
_OTHER_LIMIT = re.compile(
    r"per (sec|min|hour|day)|rate.?limit|quota|deadline|timed? ?out|\.(id|name|description)\b|cancell?ed|retries|queue"
    r"|concurren|memory|\b(requests|entity|header|bytes|[kmg]i?b)\b",
    re.IGNORECASE,
)
"""Limits of an account, a server, a proxy, of time and of a name, which are worded like context limits."""
_MODERATED = re.compile(
    r"content.?(filter|policy|management|moderation|exists risk)|data.?inspection|inappropriate|moderat(ed|ion)|flagged"
    r"|guardrail|(?<!case.)(?<!in)sensitive|prohibited.?content|unsafe (content|prompt|input|text)|\bsafety\b"
    r"|safety.check|high risk|(usage|violat).{1,40}(polic|terms|guideline)|responsible.?ai|censor|不安全|敏感|违规",
    re.IGNORECASE,
)
LENGTH = re.compile(r"length|max_.*tokens|context_window_exceeded")
FILTERED = re.compile(r"filter|refus|safety|sensitive|recitation|prohibited|block|spii|guardrail|toxic")
BROKEN = re.compile(r"error|abort|cancel|fail|time_?out|insufficient|unavailable|overload")
_FINISHED = re.compile(r"$|stop|eos|end|complete|done|malformed_function_call")
"""Beginnings of finish reasons of a complete answer; any other reason is a fault if the answer is empty."""
_CALL = re.compile(
    r"[<\[][^\s<>\[\]]{0,20}(tool.?call|function.?call|function\b|invoke\b)|python_tag|tool_code|\bto=functions"
    r"|\"(arguments|parameters)\"\s*:|\[[\w.]+\((\w+=|\))|<details type=.tool_calls",
    re.IGNORECASE,
)
"""Calls in the formats of many models: in tags, as JSON, in Harmony's channel, as Python."""
_CALLED = re.compile(r"(?<!malformed_)\b(tool|function)[_-]?(calls?|use)\b")
"""A finish reason, or the name of a field, that says that the message has calls."""
_THOUGHTS = ("reason", "think")
"""Beginnings of the names of fields and parts that hold the model's thoughts."""
_PARTS = "thinking_parts"
"""A placeholder for thoughts among the parts of a content: they are not a field, so there is none to send back."""
_SILENT_PARTS = (*_THOUGHTS, "redacted_thinking", "reference")
"""Beginnings of the types of parts that are neither text nor calls."""
STREAMS_ONLY = re.compile(
    r"only supports? stream|non.stream|\bstream\b.{0,20}\b(must|required)|(must|required?|enable|set)\b.{0,30}\bstream",
    re.IGNORECASE,
)
"""The endpoint answers only in streams."""
MISSES_THOUGHTS = re.compile(
    r"(reasoning|thinking|thought)\w*.{0,120}\b(missing|must|required|pass(ed)?)\b"
    r"|\b(missing|must|required|pass)\b.{0,120}(reasoning|thinking|thought)",
    re.IGNORECASE,
)
"""The thoughts of earlier messages must be sent back."""
NAMES_CALL = re.compile(r"\bjson\b|argument|tool.?call", re.IGNORECASE)
"""The error is about a call in the request's messages."""
_AS_SENT = {"exclude_unset": True, "warnings": False, "exclude": {"function": {"parsed_arguments"}}}
"""Options that leave out what the client adds to a streamed call."""
_ECHOES = frozenset({"input", "ctx", "flagged_input"})
"""Fields of an error that repeat the request, whose words come from the task."""
_LIMITS = ("max_tokens", "max_completion_tokens")
_WEIGHT = ("seed", "top_p", "max_tokens", "max_completion_tokens", "temperature")
"""Fields in order of their effect on sampling, the least important first."""
_PARSES_CALLS = "parses tool calls itself: start it without a tool-call parser"
_SHOWN = 200


def refusal(code: int, text: str, url: str) -> Exception | None:
    """Why a request got an error with these words; None if they do not concern only this request."""
    said = _said(text)
    too_long = (code in REQUEST_STATUSES or code >= 500) and _TOO_LONG.search(said)
    if too_long and not _OTHER_LIMIT.search(said):
        return ContextExceeded(said[:_SHOWN])
    if code in REQUEST_STATUSES and _MODERATED.search(said):
        return RequestRefused(f"{url} refuses the request's words with {code}: {said[:_SHOWN]}")
    return None


def refused_field(text: str, sent: Collection[str]) -> str | None:
    """The field of a request that, according to an error's words, the model does not accept; None if they name none.

    If several fields cannot be combined, the one that matters least.
    """
    try:
        error = json.loads(text)["error"]
        *_, named = str(error["param"]).split(".")
    except (ValueError, TypeError, LookupError):
        named = ""
    if named in sent or "[" in named:
        return named if named in sent else None
    said = _said(text).lower().replace("_", "")
    names = {field: r"max(imum )?\w*tokens" if field in _LIMITS else field.replace("_", "") for field in sent}
    fields = sorted(sent, key=lambda field: _WEIGHT.index(field) if field in _WEIGHT else -1)
    return next((field for field in fields if re.search(rf"\b{names[field]}\b", said)), None)


def _said(text: str) -> str:
    """The words of an error in one line: for JSON, its values without those that repeat the request."""
    try:
        return one_line(" ".join(_values(json.loads(text))))
    except (ValueError, RecursionError):
        return one_line(text)


def _values(value: Any) -> Iterator[str]:
    if isinstance(value, list | dict):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in pairs:
            yield from () if key in _ECHOES else _values(each)
    elif value is not None:
        yield str(value)


def says(what: re.Pattern[str], text: str) -> bool:
    """True if an error's words say this."""
    return bool(what.search(_said(text)))


def looks_like_call(text: str) -> bool:
    """True if a text contains a call in one of the many formats that models write."""
    return bool(_CALL.search(text))


def read_reply(completion: ChatCompletion, url: str, offers_tools: bool = False) -> Reply:
    """The message of a completion, whose shape the client does not check.

    Some gateways split one message into several choices, the text in one and calls in others; these are joined again.
    Raises EndpointFault if it is not a completion, was cut off, or lost what the model wrote; RequestRefused if the
    model or a filter refused; EndpointRefused if the endpoint parsed tool calls although the request offered no tools.
    """
    try:
        _require_no_error(completion.model_extra or {}, url)
        pieces = [_read_choice(choice, url) for choice in completion.choices]
        text, calls = _whole(pieces, url)
        if calls and not offers_tools:
            raise EndpointRefused(f"{url} {_PARSES_CALLS}, or read its calls with --prompt-mode openai_fc.")
        reason = " ".join(piece.reason for piece in pieces if piece.reason)
        if any(piece.refusal for piece in pieces) or FILTERED.search(reason):
            said = " ".join(piece.refusal for piece in pieces) or text
            raise RequestRefused(f"{url} refused ({reason}): {said:.{_SHOWN}}")
        truncated = bool(LENGTH.search(reason))
        thoughts = {name: value for piece in pieces for name, value in piece.thoughts.items()}
        if not (text.strip() or calls or truncated):
            _require_silence(thoughts, reason, url, offers_tools)
        elif BROKEN.search(reason):
            raise EndpointFault("endpoint_error", f"{url} broke an answer off ({reason}): {text:.{_SHOWN}}")
        if not calls and not truncated and (_CALLED.search(reason) or any(piece.lost for piece in pieces)):
            where = next((piece.lost for piece in pieces if piece.lost), f"finish_reason {reason}")
            raise EndpointFault(
                "endpoint_error", f"{url} says that it made a call ({where}), and gave none: {text:.{_SHOWN}}"
            )
        return Reply(
            text=text,
            truncated=truncated,
            tokens=_count(completion.usage, "completion_tokens"),
            prompt_tokens=_count(completion.usage, "prompt_tokens"),
            calls=tuple(calls),
            thoughts={name: value for name, value in thoughts.items() if name != _PARTS},
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise EndpointFault("endpoint_protocol", f"{url} answered no chat completion: {completion!r:.200}") from error


def _count(usage: Any, name: str) -> int:
    """An endpoint's count, 0 if it is missing or not a number of tokens."""
    count = getattr(usage, name, 0)
    return count if type(count) is int and count > 0 else 0


class _Piece(NamedTuple):
    """One choice of a completion. lost: the field of a call that this module does not read, or ""."""

    text: str
    calls: list[Any]
    refusal: str
    reason: str
    thoughts: Mapping[str, Any]
    lost: str


def _read_choice(choice: Choice, url: str) -> _Piece:
    message, more = choice.message, choice.message.model_extra or {}
    _require_no_error(choice.model_extra or {}, url)
    calls = [call.model_dump(**_AS_SENT) for call in message.tool_calls or ()]
    if not calls and (old := message.function_call) and old.name:  # the API's first form of a call, which has no id
        calls = [{"id": "call_0", "type": "function", "function": old.model_dump(**_AS_SENT)}]
    if not isinstance(message.content, list):
        text, refusal, thoughts = message.content or "", message.refusal or "", {}
    else:  # parts, as in answers of Mistral's models
        kinds = [str(part.get("type") or "text") for part in message.content]
        for kind in kinds:
            if not kind.startswith(("text", "output_text", "refusal", *_SILENT_PARTS)):
                raise EndpointFault("endpoint_error", f"{url} answered a part of the type {kind}, which is not read")
        text = "".join(part.get("text") or "" for part in message.content)
        refusal = message.refusal or " ".join(part["refusal"] for part in message.content if part.get("refusal"))
        thoughts = {_PARTS: thinking} if (thinking := [x for p in message.content if (x := p.get("thinking"))]) else {}
    thoughts |= {name: value for name, value in more.items() if name.startswith(_THOUGHTS) and value}
    lost = next(
        (name for name, value in [*more.items(), *(choice.model_extra or {}).items()] if value and _CALLED.match(name)),
        "",
    )
    reason = str(choice.finish_reason or "").lower()
    return _Piece(*_sound([text, calls, refusal]), reason, _sound(thoughts), lost)


def _whole(pieces: Sequence[_Piece], url: str) -> tuple[str, list[Any]]:
    """The text and the calls of all choices; if all choices are text, they are not pieces, and the first one counts."""
    texts = [piece.text for piece in pieces if piece.text.strip()]
    calls = [call for piece in pieces for call in piece.calls]
    if calls and len(pieces) > 1 and (len(texts) > 1 or any(calls.count(call) > 1 for call in calls)):
        raise EndpointFault("endpoint_error", f"{url} answered {len(pieces)} messages with calls to one request")
    return (texts[0] if len(pieces) > 1 and texts else pieces[0].text), calls


def _sound(value: Any) -> Any:
    """The value without lone surrogates, which JSON can carry, but no log and no further request."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _require_no_error(more: Mapping[str, Any], url: str) -> None:
    """Raise the error that an answer with status 200 contains, if any."""
    if states_error(error := more.get("error")):
        code, text = error.get("code") if isinstance(error, dict) else None, json.dumps(error, ensure_ascii=False)
        status = code if isinstance(code, int) else 400
        raise refusal(status, text, url) or EndpointFault("endpoint_error", f"{url} answered an error: {text[:_SHOWN]}")


def _require_silence(fields: Mapping[str, Any], reason: str, url: str, offers_tools: bool) -> None:
    """EndpointFault if the endpoint, not the model, caused an answer without text or calls.

    If the request offers tools, thoughts without an answer count as the model's, as officially, unless they hold calls.
    """
    thoughts = " ".join(_values(fields)).strip()
    if thoughts and (not offers_tools or _CALL.search(thoughts)):
        raise EndpointFault(
            "endpoint_reasoning",
            f"{url} left the whole answer in the thoughts ({thoughts[:80]!r}...): start it without a reasoning parser "
            "(vLLM: --reasoning-parser), or with the one of this model.",
        )
    if not _FINISHED.match(reason):
        raise EndpointFault("endpoint_error", f"{url} gave an empty answer with finish_reason {reason}")
