"""Decide from the public text of a tool result whether the call failed.

The benchmark's simulators report failures in five forms: an ``error`` field; the text of an exception; a list whose
only entry is an error; a flag such as ``success`` or ``login_status`` that is false; and a sentence in place of the
value.
"""

import re

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
