"""A run's logs to report on."""

import importlib.util
from pathlib import Path

import pytest


def _sample():
    spec = importlib.util.spec_from_file_location("sample_run", Path(__file__).with_name("sample_run.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def write_run():
    """The function that writes a run's logs into a folder."""
    return _sample().write_run
