"""The extension of docs/extend.md as an installed package: its folder, and what an installer writes beside it."""

import tomllib
from pathlib import Path

from seal.method.diagnosis.extension import EXTENSIONS
from seal.system.paths import HOME

FOLDER = HOME / "tests" / "method" / "repeated_call"


def installed(folder: Path) -> tuple[str, str]:
    """The entries of the import path with which Python has the package, its metadata in `folder`."""
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8")
    lines = [f"{name} = {value}" for name, value in project["entry-points"][EXTENSIONS].items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{EXTENSIONS}]", *lines, ""]), encoding="utf-8")
    return str(FOLDER), str(folder)
