"""A folder that is written completely or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def require_empty(out: Path) -> None:
    """ValueError if a folder cannot be moved to this place, or if something is already there."""
    if not out.name or out.is_symlink() or os.path.ismount(out):
        raise ValueError(f"{out} is a link, a mounted disk or this folder, which no move replaces: name one inside.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty: name another --out, or remove it.")


@contextmanager
def written_whole(out: Path) -> Iterator[Path]:
    """A draft folder that becomes `out`, empty or missing, at the end of the block; an error leaves nothing."""
    require_empty(out)
    draft = out.with_name(f"{out.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        if out.exists():
            out.rmdir()
        draft.replace(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
