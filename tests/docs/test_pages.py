"""Every relative link of the documentation resolves, also its anchor, and the site's navigation leads to every page."""

import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from seal.system.paths import HOME

DOCS = HOME / "docs"
SOURCES = {".py", ".toml", ".yaml", ".sh", ".txt"}
PAGES = sorted(
    [*HOME.glob("*.md"), *HOME.glob("benchmarks/*.md"), *DOCS.rglob("*.md"), *HOME.glob("shelf/**/README.md")]
)


def tokens(path: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))


def targets(path: Path) -> list[str]:
    """Return the targets of a page's links and images, without web addresses."""
    inline = [child for token in tokens(path) for child in token.children or ()]
    targets = [str(child.attrs.get("href") or child.attrs.get("src") or "") for child in inline]
    return [target for target in targets if target and not re.match(r"[a-z]+:", target)]


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub and the site give to the headings of a page."""
    seen: Counter[str] = Counter()
    found = set()
    stream = tokens(path)
    for opening, inline in itertools.pairwise(stream):
        if opening.type == "heading_open":
            text = "".join(child.content for child in inline.children or ())
            slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(HOME).as_posix())
def test_every_relative_link_and_its_anchor_resolve(page):
    broken = []
    for target in targets(page):
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        missing_anchor = anchor and place.suffix == ".md" and place.is_file() and anchor not in anchors(place)
        if not place.is_relative_to(HOME) or not place.exists() or missing_anchor:
            broken.append(target)
    assert broken == []


def test_an_anchor_is_that_of_github():
    assert {"the-profile-c_t", "own-and-inherited-faults"} <= anchors(DOCS / "how-it-works.md")


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags name Python objects."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def site() -> dict[str, Any]:
    return yaml.load((HOME / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def entries(nav: Any) -> list[str]:
    """The pages of a navigation, in order."""
    if isinstance(nav, str):
        return [nav]
    return [page for each in (nav.values() if isinstance(nav, dict) else nav) for page in entries(each)]


def test_the_navigation_has_every_page_once():
    found = entries(site()["nav"])
    assert len(found) == len(set(found))
    pages = {
        path.relative_to(DOCS).with_suffix(".md").as_posix() for path in (*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb"))
    }
    pages |= {f"benchmarks/{path.name}" for path in HOME.glob("benchmarks/*.md")}
    pages |= {f"shelf/{path.parent.name}.md" for path in HOME.glob("shelf/*/README.md")}
    assert set(found) == pages | {"index.md", "contributing.md", "changelog.md", "settings.md"}


def test_the_site_asks_nothing_of_the_network():
    assert site()["theme"]["font"] is False
    outside = [page for page in PAGES if any(child.type == "image" and "://" in str(child.attrs["src"])
               for token in tokens(page) for child in token.children or ())]  # fmt: skip
    assert outside == []


REFERENCE = re.compile(r"\b((?:docs|shelf/\w+)/[\w-]+\.md)(?:#([\w-]+))?")
"""A page that a docstring, a message or a comment names, with its anchor."""


def test_code_refers_to_pages_that_exist():
    folders = ("seal", "env_service", "shelf", "exp", "scripts", "tests", "docker", "benchmarks")
    sources = [path for folder in folders for path in (HOME / folder).rglob("*") if path.suffix in SOURCES]
    broken = []
    for path in sources:
        for page, anchor in REFERENCE.findall(path.read_text(encoding="utf-8")):
            place = HOME / page
            if not place.is_file() or (anchor and anchor not in anchors(place)):
                broken.append(f"{path.relative_to(HOME)}: {page}#{anchor}")
    assert broken == []
