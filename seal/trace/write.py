"""Traces as a file, for the collector's `otlpjsonfile` receiver."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from seal.files import replacing
from seal.trace.otlp import text


def write(traces: Iterable[Mapping[str, Any]], path: Path) -> int:
    """Write one `TracesData` per line, in one move; returns how many."""
    count = 0
    with replacing(path) as draft, draft.open("w", encoding="utf-8") as file:
        for data in traces:
            file.write(text(data) + "\n")
            count += 1
    return count
