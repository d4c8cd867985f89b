"""The tutorial's code runs exactly as the docs print it: it conforms, its tests pass, its recipe selects its tasks."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seal.data.parquet import read_rows
from seal.launch import preflight
from seal.launch.recipe import read_recipe
from seal.system.paths import HOME
from shelf.authoring.conformance import conformance
from shelf.authoring.scaffold import write_package

PAGE = (HOME / "docs" / "environments.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL))


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registered: Callable[[str, str], str]) -> Path:
    """The package as the tutorial's reader has it after the last step."""
    folder = tmp_path / "library"
    write_package("library", folder)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    registered("library", "library_env.environment:LibraryEnvironment")
    yield folder
    for name in [name for name in sys.modules if name.startswith("library_env")]:
        del sys.modules[name]


def test_the_environment_conforms(library: Path) -> None:
    findings = list(conformance("library"))
    assert not [f"{finding.check}: {finding.detail}" for finding in findings if not finding.passed]
    shown = re.search(r"```text\n(.*?)\.\.\.", PAGE, re.DOTALL)[1].splitlines()
    assert shown == [f"pass  {finding.check:<18}{finding.detail}" for finding in findings[:3]]


def test_its_own_tests_pass(library: Path) -> None:
    spec = importlib.util.spec_from_file_location("library_tests", library / "tests" / "test_environment.py")
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    tests.test_lending_without_taking_back_fails_with_its_label()


def test_its_recipe_selects_its_tasks(library: Path, tmp_path: Path) -> None:
    files = [f"data.{name}_files={tmp_path}/{name}.parquet" for name in ("train", "val")]
    recipe = read_recipe(library / "library.yaml", files)
    preflight.CHECKS["environments"](recipe)
    assert (len(recipe.rows.train), len(recipe.rows.val)) == (8, 4)
    recipe.rows.write(tmp_path / "train.parquet", tmp_path / "val.parquet")
    assert {row.data_source for row in read_rows(tmp_path / "train.parquet")} == {"library/exchange"}
