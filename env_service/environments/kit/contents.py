"""The text of a result whose parts are not all text, as MCP's tools and chats have them."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

_DATA = re.compile("image|audio|video|file|document|inline_?data", re.IGNORECASE)
"""Types of parts that hold data, under any key."""


def contents_text(parts: Sequence[Any], structured: Any = None) -> str:
    """The parts of a result, one per line, then its structured content unless the parts say the same."""
    texts = [text for text in map(part_text, parts) if text]
    if structured is not None and not _told(structured, texts):
        texts.append(_json(structured))
    return "\n".join(texts)


def part_text(part: Any) -> str:
    """The text of a part or its embedded resource; for data, a digest, so that two pictures differ; else its JSON."""
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else _json(part)
    resource = part.get("resource")
    inner = resource if isinstance(resource, Mapping) else part
    for key in ("text", "refusal"):
        if isinstance(inner.get(key), str):
            return inner[key]
    return f"[{part.get('type', 'data')} {crc32(_json(part).encode()):08x}]" if is_data(part) else _json(part)


def is_data(part: Mapping[str, Any]) -> bool:
    """Whether a part without text holds a picture, a sound or a file."""
    resource = part.get("resource")
    blob = isinstance(resource, Mapping) and "blob" in resource
    return blob or _DATA.search(str(part.get("type"))) is not None


def _told(structured: Any, texts: Sequence[str]) -> bool:
    """Whether the parts hold the structured content, with or without the `result` that FastMCP's servers wrap it in."""
    read = [_value(text) for text in texts]
    wrapped = isinstance(structured, Mapping) and structured.keys() == {"result"}
    values = [structured, structured["result"]] if wrapped else [structured]
    return any(value in (*read, *texts, read, texts) for value in values)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
