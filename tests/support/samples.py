"""Tests over all tasks: `make test` takes every tenth, `make test-slow` all of them."""

import pytest

in_steps = pytest.mark.parametrize(
    "step", [pytest.param(10, id="every tenth"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
