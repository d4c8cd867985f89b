"""Measures the repository against the limits of `[tool.seal.budget]` in pyproject.toml; part of `make lint`.

To add a feature, say what you remove. Prints one line per limit; exit code 1 if one is exceeded.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

sys.path.insert(0, str(HOME := Path(__file__).resolve().parents[1]))

from seal.cli.main import commands
from seal.settings import BLOCKS
from seal.settings.base import Settings

DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)


def text(name: str) -> str:
    """The text of a tracked file."""
    return (HOME / name).read_text(encoding="utf-8")


def lines(names: Sequence[str]) -> int:
    """Lines as `wc -l` counts them."""
    return sum(text(name).count("\n") for name in names)


def settings() -> int:
    """Keys of the recipe's own blocks; one that several blocks share counts once."""
    blocks, waiting = set(), list(BLOCKS.values())
    while waiting:
        annotation = waiting.pop()
        waiting += get_args(annotation)
        if isinstance(annotation, type) and issubclass(annotation, Settings) and annotation not in blocks:
            blocks.add(annotation)
            waiting += [field.annotation for field in annotation.model_fields.values()]
    return sum(field.annotation not in blocks for block in blocks for field in block.model_fields.values())


def phrases(names: Sequence[str], forbidden: Sequence[str]) -> Iterator[str]:
    """The places of phrases that withhold their noun, in pages and in docstrings."""
    pattern = re.compile("|".join(rf"\b{re.escape(phrase)}\b".replace(r"\ ", r"\s+") for phrase in forbidden), re.I)
    for name in names:
        whole = text(name)
        spans = [match.span(1) for match in DOCSTRING.finditer(whole)] if name.endswith(".py") else [(0, len(whole))]
        for start, end in spans:
            for match in pattern.finditer(whole, start, end):
                yield f"{name}:{whole.count(chr(10), 0, match.start()) + 1}: {' '.join(match[0].split())}"


def main() -> int:
    """Print what each limit is compared with; 1 if one of them is exceeded."""
    budget = tomllib.loads(text("pyproject.toml"))["tool"]["seal"]["budget"]
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=HOME, capture_output=True, text=True, check=True).stdout
    files = [name for name in listed.split("\0") if name and (HOME / name).is_file()]
    code = [name for name in files if name.endswith(".py") and "tests" not in Path(name).parts]
    core = [name for name in code if name.split("/")[0] in ("launcher.py", "seal", "env_service")]
    rooms = {name.split("/")[1] for name in core if name.startswith("seal/")} - {"__init__.py"}
    by_hand = re.compile(r"README\.md|(docs|shelf)/.*\.md|benchmarks/[^/]+\.md")
    pages = [name for name in files if by_hand.fullmatch(name)]
    places = list(phrases([*code, *pages], budget.pop("forbidden")))
    measured = {
        "core_lines": lines(core),
        "whole_lines": lines(code),
        "rooms": len(rooms),
        "settings": settings(),
        "commands": len(commands()),
        "readme_words": len(text("README.md").split()),
        "readme_lines": lines(["README.md"]),
        "docs_words": sum(len(text(page).split()) for page in pages),
        "tree_megabytes": round(sum((HOME / name).stat().st_size for name in files) / 1e6, 1),
        "forbidden_phrases": len(places),
    }
    above = {name for name, limit in budget.items() if measured[name] > limit}
    for name, limit in budget.items():
        print(f"{name.replace('_', ' '):18} {measured[name]:>9,} of {limit:,}{'  ABOVE' if name in above else ''}")
    print(*places, sep="\n", end="\n" if places else "")
    return int(bool(above))


if __name__ == "__main__":
    sys.exit(main())
