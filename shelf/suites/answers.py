"""What an endpoint's answer means: a message, a refusal, a dialogue that is too long, a field that it does not take.

Endpoints word the same thing in their own ways, so kinds are told by words, not by a vendor's codes.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from openai.types.chat import ChatCompletion

from seal.rollout.speaker import SpeakerFault


class EndpointFault(SpeakerFault):
    """The endpoint gave no usable answer to one request; cause names the kind."""


class RequestRefused(EndpointFault):
    """The model, or a filter before or behind it, refuses to answer this one request."""

    def __init__(self, message: str):
        super().__init__("refusal", message)


class EndpointRefused(RuntimeError):
    """The endpoint will refuse every request; the text says what to change."""


class ContextExceeded(RuntimeError):
    """The dialogue does not fit the model's context."""


class Reply(NamedTuple):
    """One assistant message; truncated if a length limit cut it.

    tokens and prompt_tokens are the endpoint's own counts, or 0. calls: the entries of `tool_calls`, if the request
    offered tools.
    """

    text: str
    truncated: bool
    tokens: int
    prompt_tokens: int = 0
    calls: tuple[Mapping[str, Any], ...] = ()


TOO_LARGE = 413
REQUEST_STATUSES = frozenset({400, 403, TOO_LARGE, 422, 451})
"""Statuses that may be about one request alone: its length, its words, one of its fields."""

_TOO_LONG = re.compile(
    r"context.{0,40}(length|size|window|limit|exceed|overflow)|(exceed|longer|larger|overflow).{0,60}context"
    r"|(prompt|inputs?|messages|sequence|total)\b.{0,80}(too (long|large)|longer than|exceed(s|ed)?\b|must be <=)"
    r"|only supports up to|request\b.{0,20}(too large|exceeds)|less than \d+ tokens|token limit"
    r"|too many (input )?tokens|range of input length|reduce the length|max_model_len|max_seq_len"
    r"|maximum (prompt|input|model|sequence) length|超长|长度超",
    re.IGNORECASE | re.DOTALL,
)
_OTHER_LIMIT = re.compile(
    r"per (sec|min|hour|day)|rate.?limit|quota|deadline|timed? ?out|\.(id|name|description)\b", re.IGNORECASE
)
"""Limits of an account, of time and of a name, which are worded like those of a context."""
_MODERATED = re.compile(
    r"content.?(filter|policy|management|moderation|exists risk)|data.?inspection|inappropriate|moderat(ed|ion)|flagged"
    r"|guardrail|(?<!case.)(?<!in)sensitive|prohibited.?content|unsafe (content|prompt|input|text)|\bsafety\b"
    r"|safety.check|high risk|(usage|violat).{1,40}(polic|terms|guideline)|responsible.?ai|censor|不安全|敏感|违规",
    re.IGNORECASE,
)
_LENGTH = re.compile(r"length|max_.*tokens|context_window_exceeded")
_FILTERED = re.compile(r"filter|refus|safety|sensitive|recitation|prohibited|block|spii|guardrail|toxic")
_BROKEN = re.compile(r"error|abort|cancel|fail|time_?out|insufficient|unavailable|overload")
_FINISHED = re.compile(r"$|stop|eos|end|complete|done|malformed_function_call")
"""Starts of reasons of an answer that is complete; another one is a fault if the answer is empty."""
_CALL = re.compile(
    r"[<\[][^\s<>\[\]]{0,20}(tool.?call|function.?call|function\b|invoke\b)|python_tag|tool_code|\bto=functions"
    r"|\"(arguments|parameters)\"\s*:|\[[\w.]+\((\w+=|\))",
    re.IGNORECASE,
)
"""Calls in the formats of many models: in tags, as JSON, in Harmony's channel, as Python."""
_ECHOES = frozenset({"input", "ctx", "flagged_input"})
"""Fields of an error that repeat the request, whose words are the task's."""
_LIMITS = ("max_tokens", "max_completion_tokens")
_WEIGHT = ("seed", "top_p", "max_tokens", "max_completion_tokens", "temperature")
"""From the field that matters least to what is sampled."""
_PARSES_CALLS = "parses tool calls itself: start it without a tool-call parser"
_SHOWN = 200


def refusal(code: int, text: str, url: str) -> Exception | None:
    """Why a request got an error with these words; None if they say nothing about this request alone."""
    said = _said(text)
    too_long = code == TOO_LARGE or ((code in REQUEST_STATUSES or code >= 500) and _TOO_LONG.search(said))
    if too_long and not _OTHER_LIMIT.search(said):
        return ContextExceeded(said[:_SHOWN])
    if code in REQUEST_STATUSES and _MODERATED.search(said):
        return RequestRefused(f"{url} refuses the request's words with {code}: {said[:_SHOWN]}")
    return None


def one_line(text: str) -> str:
    """An endpoint's words as a part of a sentence."""
    return " ".join(text.split())


def refused_field(text: str, sent: Collection[str]) -> str | None:
    """The field of a request that an error's words name as one that the model does not take; None if they name none.

    Of several fields that cannot be combined, the one that matters least.
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
    """The words of an error in one line: of JSON the values, without what repeats the request."""
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


def read_reply(completion: ChatCompletion, url: str, offers_tools: bool = False) -> Reply:
    """The message of a completion, whose shape the client does not check.

    Raises EndpointFault if it is none, was broken off, or has lost what the model wrote; RequestRefused if the model or
    a filter refused; EndpointRefused if the endpoint parsed tool calls that the request did not offer.
    """
    try:
        _require_no_error(completion.model_extra or {}, url)
        choice = completion.choices[0]
        message, reason = choice.message, str(choice.finish_reason or "").lower()
        calls = _sound([call.model_dump(exclude_unset=True, warnings=False) for call in message.tool_calls or ()])
        if calls and not offers_tools:
            raise EndpointRefused(f"{url} {_PARSES_CALLS}, or read its calls with --prompt-mode openai_fc.")
        _require_no_error(choice.model_extra or {}, url)
        parts = message.content if isinstance(message.content, list) else []  # as Mistral's models answer
        text = _sound("".join(part.get("text") or "" for part in parts) if parts else message.content or "")
        if message.refusal or _FILTERED.search(reason):
            raise RequestRefused(f"{url} refused ({reason}): {message.refusal or text:.{_SHOWN}}")
        truncated = bool(_LENGTH.search(reason))
        if not (text.strip() or calls or truncated):
            more = {**(message.model_extra or {}), "thinking_parts": [part.get("thinking") for part in parts]}
            _require_silence(more, reason, url, offers_tools)
        elif _BROKEN.search(reason):
            raise EndpointFault("endpoint_error", f"{url} broke an answer off ({reason}): {text:.{_SHOWN}}")
        usage = completion.usage
        return Reply(
            text=text,
            truncated=truncated,
            tokens=(usage.completion_tokens if usage else 0) or 0,
            prompt_tokens=(usage.prompt_tokens if usage else 0) or 0,
            calls=tuple(calls),
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise EndpointFault("endpoint_protocol", f"{url} answered no chat completion: {completion!r:.200}") from error


def _sound(value: Any) -> Any:
    """The value without halves of surrogate pairs, which JSON can carry, but no log and no other request."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _require_no_error(more: Mapping[str, Any], url: str) -> None:
    """Raise what an error inside an answer with the status 200 says."""
    if error := more.get("error"):
        code, text = error.get("code") if isinstance(error, dict) else None, json.dumps(error, ensure_ascii=False)
        status = code if isinstance(code, int) else 400
        raise refusal(status, text, url) or EndpointFault("endpoint_error", f"{url} answered an error: {text[:_SHOWN]}")


def _require_silence(more: Mapping[str, Any], reason: str, url: str, offers_tools: bool) -> None:
    """EndpointFault if an answer without text or calls is the endpoint's doing, not the model's silence.

    With tools in the request, thoughts without an answer are the model's, as officially, unless they hold its calls.
    """
    thoughts = " ".join(
        _values([value for name, value in more.items() if name.startswith(("reason", "think"))])
    ).strip()
    if thoughts and (not offers_tools or _CALL.search(thoughts)):
        raise EndpointFault(
            "endpoint_reasoning",
            f"{url} left the whole answer in the thoughts ({thoughts[:80]!r}...): start it without a reasoning parser "
            "(vLLM: --reasoning-parser), or with the one of this model.",
        )
    if not _FINISHED.match(reason):
        raise EndpointFault("endpoint_error", f"{url} gave an empty answer with finish_reason {reason}")
