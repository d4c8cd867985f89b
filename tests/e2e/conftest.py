"""Experiments of the real launcher that are removed after the test."""

import shutil
from uuid import uuid4

import pytest

from tests.support.launches import HOME, Run


@pytest.fixture
def make_run():
    """Make experiments that are removed after the test."""
    runs = []

    def make(*overrides: str, **settings) -> Run:
        run = Run(f"test-{uuid4().hex[:8]}", overrides, **settings)
        runs.append(run)
        return run

    yield make
    for run in runs:
        shutil.rmtree(run.folder, ignore_errors=True)
        shutil.rmtree(HOME / "launcher_record" / run.name, ignore_errors=True)
