"""Pictures of the viewer for its documentation page: ``make screenshots RUN=FOLDER``; needs a Chromium."""

import argparse
import io
import sqlite3
from pathlib import Path

from PIL import Image

from seal.system.paths import HOME
from shelf.view.app import make_app
from shelf.view.index import Index
from shelf.view.runs import ViewedRun, find_runs
from shelf.view.tests.viewer.chromium import Page, chromium, find_chromium
from shelf.view.tests.viewer.conftest import served

LARGE, PHONE = (1280, 860), (400, 860)
_FAILED = (
    "SELECT log, step, line FROM trajectory WHERE log = 'train' AND NOT passed AND infra IS NULL AND errors > 0 "
    "ORDER BY step DESC, calls LIMIT 1"
)


def main() -> None:
    """Write the pictures of the viewer's page, or with --all those of every page, theme and width."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="the folder of a run")
    parser.add_argument("--out", type=Path, default=HOME / "docs" / "assets")
    parser.add_argument("--all", action="store_true", help="every page, theme and width; else those of the docs")
    arguments = parser.parse_args()
    program = find_chromium()
    if program is None:
        raise SystemExit("There is no Chromium: apt-get install chromium, or set SEAL_TEST_CHROMIUM.")
    runs = find_runs([arguments.run], Path())
    pages = {"overview": "#/overview", "failures": "#/failures", "groups": "#/groups", "cues": "#/cues"}
    pages["trajectory"] = f"#/trajectory?key={_failed(runs[0])}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    with served(make_app(runs)) as address, chromium(program) as page:
        for name, fragment in pages.items():
            for size in (LARGE, PHONE):
                for dark in (False, True):
                    if arguments.all or (name, size, dark) in DOCS:
                        suffix = f"{'_400' if size is PHONE else ''}{'_dark' if dark else ''}"
                        path = arguments.out / f"viewer_{name}{suffix}.png"
                        _take(page, f"{address}/{fragment}", size, dark, path)
                        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


DOCS = {("cues", LARGE, False), ("trajectory", LARGE, True)}
"""Page, size and theme of the pictures that the pages show."""


def _failed(run: ViewedRun) -> str:
    """The newest trajectory that failed and met errors; the first line of the log if there is none."""
    index = Index(run.folder)
    index.update()
    with index.reading() as db:
        db.row_factory = sqlite3.Row
        row = db.execute(_FAILED).fetchone()
    return ":".join(map(str, row)) if row else "train:1:1"


def _take(page: Page, address: str, size: tuple[int, int], dark: bool, path: Path) -> None:
    page.size(*size, dark)
    page.open(address)
    page.wait("document.querySelector('main h1, main .panel, main .rows')", "the page")
    page.wait("!document.querySelector('[aria-busy=true]')", "the loaded page")
    page.screenshot(path)
    picture = Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
    picture.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
