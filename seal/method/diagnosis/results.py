"""Decide from the public text of a tool result whether the call failed.

The benchmark's simulators report failures in five forms: an ``error`` field; the text of an exception; a list whose
only entry is an error; a flag such as ``success`` or ``login_status`` that is false; and a sentence in place of the
value. The tools of a file can come from anyone, so only an explicit mark counts there.
"""

import ast
import json
import re
from typing import Any

_ERROR = re.compile(
    r"""^\s*(?:\[\s*)?(?:
        \{\s*["']errors?["']\s*:\s*+(?!(?:null|None|""|''|\[\]|false|False)\s*[,}])
      | ["']?error\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_FALSE_FLAG = re.compile(r"""^\s*\{\s*["'](?:success|[a-z]+_status)["']\s*:\s*false\b""", re.IGNORECASE)
_SENTENCE = re.compile(
    r"""^\s*\{\s*["']\w+["']\s*:\s*["'](?:[\w ]{1,20} not found|No user is currently logged in)["']\s*\}"""
)
_ANSWERS_FALSE = re.compile(r"(?:get|is)_.*status$|^verify_|^authenticate_twitter$")


def reports_failure(tool: str, text: str) -> bool:
    """Return True when ``text``, the result of a tool of the benchmark, says that the call failed.

    A tool that reports a status, or verifies something, may answer false when all is
    well. So may `authenticate_twitter`: references of the benchmark hold such answers.
    """
    if _ERROR.match(text) or _SENTENCE.match(text):
        return True
    return bool(_FALSE_FLAG.match(text)) and not _ANSWERS_FALSE.search(tool)


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
    value = _value(text)
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


def _value(text: str) -> Any:
    """The value of a result that is JSON or the text of a Python value; None if it is neither."""
    if text.lstrip()[:1] in ("{", "[", '"') and len(text) <= _READ_CHARACTERS:
        for read in (json.loads, ast.literal_eval):
            try:
                return read(text)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
    return None
