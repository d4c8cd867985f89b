"""Configurations that say nothing of the machine."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seal.system.paths import HOME


def movable(value: Any, checkout: Path = HOME) -> Any:
    """A configuration, or a part of it, whose paths in a checkout are relative to it.

    It then says nothing of the machine, and is the same in every clone.
    """
    if isinstance(value, Mapping):
        return {key: movable(item, checkout) for key, item in value.items()}
    if isinstance(value, list):
        return [movable(item, checkout) for item in value]
    # Not within another path.
    return re.sub(rf"(?<![\w./-]){re.escape(str(checkout))}/", "", value) if isinstance(value, str) else value
