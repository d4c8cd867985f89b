"""The tests of an adapter run in an environment with its framework, which tests/test_adapters.py makes."""

from importlib.util import find_spec

collect_ignore = [name for name in ("openenv", "trl", "verifiers") if find_spec(name) is None]
