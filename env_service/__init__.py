BENCHMARK = "bfcl-eval==2026.3.23"
"""The package of the default environment; no requirement names it, because its own requirements pull in torch."""
MODULE = "bfcl_eval"
"""The module that this package installs."""
PREFIX = "BFCL_"


def variable(name: str) -> str:
    """The environment variable of a setting of the service."""
    return PREFIX + name.upper()
