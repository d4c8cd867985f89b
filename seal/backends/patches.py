"""The changes that SEAL makes to objects of other libraries at run time, so that they run on a CPU.

internals.toml gives the reason for each, and lists every other private name
that SEAL overrides, calls or relies on.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


def gloo_process_group() -> None:
    """Make verl's workers start their process group with the backend `cpu:gloo`."""
    import verl.utils.distributed as distributed
    import verl.workers.engine_workers as engine_workers

    original = distributed.initialize_global_process_group_ray
    if getattr(original, "seal_patched", False):
        return

    @functools.wraps(original)
    def initialize(timeout_second=None, backend=None):
        return original(timeout_second=timeout_second, backend=backend or "cpu:gloo")

    initialize.seal_patched = True
    distributed.initialize_global_process_group_ray = initialize
    engine_workers.initialize_global_process_group_ray = initialize


@contextmanager
def replaced(module: ModuleType, name: str, other: object) -> Iterator[None]:
    """Within the block a module's name stands for another object."""
    original = getattr(module, name)
    setattr(module, name, other)
    try:
        yield
    finally:
        setattr(module, name, original)


def plain_linear() -> None:
    """Make vLLM's CPU linear layers compute with the current weight; call before a model loads."""
    import vllm._custom_ops as ops

    ops._supports_onednn = False
