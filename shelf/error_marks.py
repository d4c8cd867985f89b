"""Decide from the public text of any tool's result whether the call failed: only an explicit mark counts."""

import re
from typing import Any

from env_service.environments.kit.stray import literal

_MARKS = ("isError", "is_error")
_NO_ERROR = re.compile(  # a count or a measure is not an error either
    r"\s*(?:(?:no|0|zero)[ _-]?error(?:s\b.*| (?:found|occurred|detected|reported))?|no (?:issues|problems)\b.*"
    r"|0[ ,;|]+(?:warn|fail|info|note|skip|pass).*|[-+±]?\d*\.\d+(?:e-?\d+)?|[-+±]?[\d.]+ ?%|0x0+|\[\]|\{\}|no|none"
    r"|null|nil|undefined|(?:s_)?ok|success|the operation completed successfully|n/?a|false|0|-)?\s*[.!]?\s*",
    re.IGNORECASE | re.DOTALL,
)
_ERROR_TEXT = re.compile(
    r"""(?:\w+\.)*(?:[A-Z]\w*)?(?:[Ee]rror|Exception)(?: (?:during|executing|calling) [^:\n]*)?:(.*)"""
)
_LOG_LINE = re.compile(r"(?im)^(?:[^\w\n]|[\dTZ])*(?:error|info|warn(?:ing)?|debug|notice|ok|success|done)\b")
"""The beginning of a log line; if one follows, the first line does not speak for the whole text."""
_READ_CHARACTERS = 100_000


def marks_failure(text: str) -> bool:
    """Return True when a result of any tool states that the call failed, which is more than mentioning an error.

    The marks are ``isError`` or ``is_error`` that is true, a ``status`` of "error", a sentence under ``error``, and an
    error's text as the whole result. A list of records, and a result that says that it succeeded, have none.
    """
    readable = text.lstrip()[:1] in ("{", "[", '"') and len(text) <= _READ_CHARACTERS
    value = literal(text) if readable else None
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict) and len(value[0]) == 1:
        value = value[0]
    if isinstance(value, dict):
        said, status = value.get("error"), str(value.get("status")).lower()
        succeeded = status in ("ok", "success") or "true" in (str(value.get(key)).lower() for key in ("success", "ok"))
        if succeeded or any(value.get(mark) is False for mark in _MARKS):
            return False
        marked = any(value.get(mark) is True for mark in _MARKS) or status == "error"
        return marked or (isinstance(said, str) and states_error(said))
    text = (value if isinstance(value, str) else text).lstrip()
    stated = None if _LOG_LINE.search(text.partition("\n")[2]) else _ERROR_TEXT.match(text)
    return bool(stated and not _NO_ERROR.fullmatch(stated[1])) or text.startswith("Traceback (most recent call last):")


def states_error(said: Any) -> bool:
    """Return True when the value of an error key is an error; `false`, "None", {"code": 0}, {"code": 200} are not."""
    if isinstance(said, dict | list):
        return any(each != 200 and states_error(each) for each in (said.values() if isinstance(said, dict) else said))
    return not _NO_ERROR.fullmatch(said) if isinstance(said, str) else bool(said)
