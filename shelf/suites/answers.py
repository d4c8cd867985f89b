"""What an endpoint's answer means: a message, a refusal, a dialogue that is too long, a field that it does not take.

Endpoints word the same thing in their own ways, so kinds are told by words, not by a vendor's codes.
"""

import json
import re
from collections.abc import Collection, Mapping
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


REQUEST_STATUSES = frozenset({400, 403, 413, 422, 451})
"""Statuses that may be about one request alone: its length, its words, one of its fields."""

_TOO_LONG = re.compile(
    r"context.{0,40}(length|size|window|limit|exceed|overflow)|(exceed|longer|larger|overflow).{0,60}context"
    r"|(prompt|inputs?|messages?|sequence)\b.{0,80}(too (long|large)|longer than|exceeds?\b|超长)"
    r"|less than \d+ tokens|too many tokens|token limit|range of input length|reduce the length"
    r"|maximum (prompt|input|model|sequence) length|max_model_len|max_seq_len",
    re.IGNORECASE | re.DOTALL,
)
_RATE = re.compile(r"per (minute|day|hour)|rate.?limit|quota|timed? ?out", re.IGNORECASE)
"""Limits of an account, which are worded like those of a context."""
_MODERATED = re.compile(
    r"content.?(filter|policy|management|moderation)|data.?inspection|inappropriate|moderat(ed|ion)|flagged"
    r"|(?<!case.)sensitive|prohibited|unsafe|safety|high risk|violat|usage (policy|policies|guidelines)"
    r"|responsible.?ai|censor|不安全|敏感|违规",
    re.IGNORECASE,
)
_LENGTH = re.compile(r"length|max_.*tokens|context_window_exceeded")
_FILTERED = re.compile(r"filter|refus|safety|sensitive|recitation|prohibited|block|spii")
_BROKEN = re.compile(r"error|abort|cancel|fail|time_?out|insufficient|unavailable|overload")
_FINISHED = frozenset(("", "stop", "eos", "eos_token", "stop_sequence", "end_turn", "malformed_function_call"))
"""Reasons of an answer that is complete; one that no list here has is a fault if the answer is empty."""
_CALL = re.compile(r"<\W{0,2}(tool_calls?\b|function\b)|\"(arguments|parameters)\"\s*:", re.IGNORECASE)
_WEIGHT = ("seed", "top_p", "max_tokens", "max_completion_tokens", "temperature")
"""From the field that matters least to what is sampled."""
_PARSES_CALLS = "parses tool calls itself: start it without a tool-call parser"
_SHOWN = 200


def refusal(code: int, text: str, url: str) -> Exception | None:
    """Why a request got an error with these words; None if they say nothing about this request alone."""
    text = one_line(text)
    if (code in REQUEST_STATUSES or code >= 500) and _TOO_LONG.search(text) and not _RATE.search(text):
        return ContextExceeded(text[:_SHOWN])
    if code in REQUEST_STATUSES and _MODERATED.search(text):
        return RequestRefused(f"{url} refuses the request's words with {code}: {text[:_SHOWN]}")
    return None


def one_line(text: str) -> str:
    """An endpoint's words as a part of a sentence."""
    return " ".join(text.split())


def refused_field(text: str, sent: Collection[str]) -> str | None:
    """The field of a request that an error's words name as one that the model does not take; None if they name none.

    Of several fields that cannot be combined, the one that matters least.
    """
    try:
        error = json.loads(text).get("error")
        named = error.get("param") if isinstance(error, dict) else None
    except (ValueError, AttributeError):
        named = None
    if named:
        return named if named in sent else None
    words = set(re.findall("[a-z]+", text.lower().replace("_", "")))
    fields = sorted(sent, key=lambda field: _WEIGHT.index(field) if field in _WEIGHT else -1)
    return next((field for field in fields if field.replace("_", "") in words), None)


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
        text = _sound(message.content or "")
        if message.refusal or _FILTERED.search(reason):
            raise RequestRefused(f"{url} refused ({reason}): {message.refusal or text:.{_SHOWN}}")
        truncated = bool(_LENGTH.search(reason))
        if not (text.strip() or calls or truncated):
            _require_silence(message.model_extra or {}, reason, url, offers_tools)
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
    except (AttributeError, IndexError, TypeError) as error:
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
    thoughts = " ".join(str(value) for name, value in more.items() if value and name.startswith(("reason", "think")))
    if thoughts and (not offers_tools or _CALL.search(thoughts)):
        raise EndpointFault(
            "endpoint_reasoning",
            f"{url} left the whole answer in the thoughts ({thoughts[:80]!r}...): start it without a reasoning parser "
            "(vLLM: --reasoning-parser), or with the one of this model.",
        )
    if reason not in _FINISHED:
        raise EndpointFault("endpoint_error", f"{url} gave an empty answer with finish_reason {reason}")
