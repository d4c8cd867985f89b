"""Tests of an adapter run in an environment that has its framework: tests/test_adapters.py makes one."""

from importlib.util import find_spec

collect_ignore = [name for name in ("openenv", "trl", "verifiers") if find_spec(name) is None]
