"""Adds to mkdocs: pages from outside docs/, the settings page, links that leave docs/, and notebooks."""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(HOME := Path(__file__).resolve().parents[1]))

from shelf.operate.settings_page import settings_page

PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
PAGES |= {path.relative_to(HOME).as_posix(): f"benchmarks/{path.name}" for path in HOME.glob("benchmarks/*.md")}
PAGES |= {path.relative_to(HOME).as_posix(): f"shelf/{path.parent.name}.md" for path in HOME.glob("shelf/*/README.md")}
"""Pages of the site by their file in the repository, if that is outside docs/."""

SOURCES = {uri: path for path, uri in PAGES.items()}

LINK = re.compile(r"(?<=\]\()[^)\s#:]+(?=[#)])")
"""The path of a relative Markdown link."""

LANGUAGES = {".yaml": "yaml", ".yml": "yaml", ".py": "python", ".sh": "bash", ".toml": "toml", ".json": "json"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, the notebooks, and the files that pages link to."""
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(HOME / path).read_text(encoding="utf-8")))
    files.append(File.generated(config, "settings.md", content=settings_page()))
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        _add_notebook(files, config, file)
    pages = files.documentation_pages()
    linked = {_resolve(page.src_uri, link) for page in pages for link in LINK.findall(page.content_string)}
    for target in sorted(linked):
        if (uri := _uri(target)) and uri.startswith("source/"):
            content = (HOME / target).read_bytes() if _is_binary(target) else _source_page(target)
            files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point the links that were written for the repository to their pages of the site."""
    uri = page.file.src_uri

    def target(found: re.Match[str]) -> str:
        there = _uri(_resolve(uri, found[0]))
        return posixpath.relpath(there, posixpath.dirname(uri) or ".") if there else found[0]

    return markdown if uri.startswith("source/") else LINK.sub(target, markdown)


def _resolve(uri: str, link: str) -> str:
    """The path in the repository to which a link of a page points."""
    path = SOURCES.get(uri, f"docs/{uri}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _uri(path: str) -> str | None:
    """The site's page or file of a path in the repository; None if there is no such path."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("../") or not (HOME / path).exists():
        return None
    if path.startswith("docs/"):
        return path.removeprefix("docs/").replace(".ipynb", ".md")
    return f"source/{path}" if _is_binary(path) else f"source/{path}.md"


def _is_binary(path: str) -> bool:
    return Path(path).suffix in (".png", ".svg", ".gz")


def _source_page(path: str) -> str:
    """A page that shows a file of the repository, or lists a folder."""
    place = HOME / path
    if place.is_dir():
        text = "\n".join(sorted(path.name for path in place.iterdir()))
    else:
        text = place.read_text(encoding="utf-8")
    return f"# {path}\n\n````{LANGUAGES.get(place.suffix, 'text')}\n{text}\n````\n"


def _add_notebook(files: Files, config: MkDocsConfig, file: File) -> None:
    """A page with the notebook's text, code and kept outputs; its pictures become files beside it."""
    from nbconvert import MarkdownExporter

    name = Path(file.src_uri).stem
    text, resources = MarkdownExporter().from_filename(
        file.abs_src_path, resources={"unique_key": name, "output_files_dir": f"{name}_files"}
    )
    # A table with a class, or with a style of its own, would not look like those of the site.
    text = re.sub(r"<style scoped>.*?</style>\s*", "", text, flags=re.DOTALL)
    text = text.replace('<table border="1" class="dataframe">', "<table>")
    files.append(File.generated(config, str(Path(file.src_uri).with_suffix(".md")), content=text))
    for picture, data in resources["outputs"].items():
        files.append(File.generated(config, posixpath.join(posixpath.dirname(file.src_uri), picture), content=data))
