"""A new environment's package, from the templates beside this module."""

import re
from importlib import resources
from pathlib import Path
from string import Template

from env_service.environments.registry import locations

_NAME = re.compile(r"[a-z](?:[a-z0-9_]*[a-z0-9])?")
_FILES = {
    "pyproject.txt": "pyproject.toml",
    "readme.txt": "README.md",
    "recipe.txt": "recipe.yaml",
    "environment.txt": "{package}/environment.py",
    "test_environment.txt": "tests/test_environment.py",
}


def write_package(name: str, folder: Path) -> tuple[Path, ...]:
    """Write the package of a new environment into a folder that does not exist yet; return its files.

    ValueError if the name is taken, or if Python or TOML cannot write it.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name: use lower-case letters, digits and, inside, _; first a letter.")
    if name in locations():
        raise ValueError(f"There is an environment {name} already ({locations()[name]}): choose another name.")
    if folder.exists():
        raise ValueError(f"{folder} exists: remove it, or name another folder with --out.")
    package = f"{name}_env"
    values = {
        "name": name,
        "package": package,
        "distribution": f"seal-env-{name.replace('_', '-')}",
        "class_name": "".join(part.capitalize() for part in name.split("_")) + "Environment",
    }
    template, written = resources.files(__package__).joinpath("template"), [folder / package / "__init__.py"]
    written[0].parent.mkdir(parents=True)
    written[0].write_text(f'"""The environment {name}."""\n', encoding="utf-8")
    for source, target in _FILES.items():
        path = folder / target.format(package=package)
        path.parent.mkdir(exist_ok=True)
        text = template.joinpath(source).read_text(encoding="utf-8")
        path.write_text(Template(text).substitute(values), encoding="utf-8")
        written.append(path)
    return tuple(written)
