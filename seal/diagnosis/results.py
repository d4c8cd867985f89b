"""Whether the public text of a tool result reports a failure.

The simulators report failures in five forms: an ``error`` field; the text of an
exception; a list whose one entry is an error; a flag such as ``success`` or
``login_status`` that is false; and a sentence in place of the value.
"""

from __future__ import annotations

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
_ASKS = re.compile(r"(?:get|is)_.*status$")


def reports_failure(tool: str, text: str) -> bool:
    """True when ``text``, the result of ``tool``, says that the call did not do what it is for.

    A tool that asks for a status answers a false flag when all is well.
    """
    if _ERROR.match(text) or _SENTENCE.match(text):
        return True
    return bool(_FALSE_FLAG.match(text)) and not _ASKS.search(tool)
