"""Pictures of the viewer for its documentation page: ``make screenshots RUN=FOLDER``; needs a Chromium."""

import argparse
import io
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image

from seal.system.paths import HOME
from shelf.view.app import make_app
from shelf.view.report.summary import summarise
from shelf.view.runs import ViewedRun, find_runs
from shelf.view.tests.viewer.chromium import Page, chromium, find_chromium
from shelf.view.tests.viewer.conftest import served
from shelf.view.viewed import Viewed

LARGE, PHONE = (1280, 860), (400, 860)


def main() -> None:
    """Write the pictures of report and viewer, or with --all those of every page of it, theme and width."""
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
    pages |= _examples(runs[0])
    arguments.out.mkdir(parents=True, exist_ok=True)
    _report(runs[0], arguments.out / "report.png")
    with served(make_app(runs)) as address, chromium(program) as page:
        for name, fragment in pages.items():
            for size in (LARGE, PHONE):
                for dark in (False, True):
                    if arguments.all or (name, size, dark) in DOCS:
                        suffix = f"{'_400' if size is PHONE else ''}{'_dark' if dark else ''}"
                        path = arguments.out / f"viewer_{name}{suffix}.png"
                        _take(page, f"{address}/{fragment}", size, dark, path)


DOCS = {("overview", LARGE, False), ("group", LARGE, False), ("trajectory", LARGE, True)}
"""Page, size and theme of the pictures that the pages show."""


def _examples(run: ViewedRun) -> dict[str, str]:
    """The group that the overview picks, and its failed rollout."""
    viewed = Viewed(run)
    viewed.index.update()
    group = viewed.examples()["group"]
    place = {name: group[name] for name in ("step", "source", "task")}
    return {"group": f"#/group?{urlencode(place)}", "trajectory": f"#/trajectory?key={group['pair'][1]['key']}"}


def _take(page: Page, address: str, size: tuple[int, int], dark: bool, path: Path) -> None:
    page.size(*size, dark)
    page.open(address)
    page.wait("document.querySelector('main h1, main .panel, main .rows')", "the page")
    page.wait("!document.querySelector('[aria-busy=true]')", "the loaded page")
    page.wait("!location.hash.startsWith('#/overview') || document.querySelector('.grid.first')", "the first look")
    page.send("Emulation.setScrollbarsHidden", hidden=True)
    page.screenshot(path)
    _shrink(path, size[0])


def _report(run: ViewedRun, path: Path) -> None:
    """Draw the report's picture and copy it."""
    summarise(run.folder.path)
    path.write_bytes(run.folder.picture.read_bytes())
    _shrink(path, LARGE[0])


def _shrink(path: Path, width: int) -> None:
    """Fewer pixels and colours: what the repository holds stays small."""
    picture = Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
    picture.thumbnail((width, 10 * width))
    picture.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
