"""The verl platform `cpu`, selected by VERL_PLATFORM=cpu.

verl reaches its device through a platform object and through the device's torch module. verl 0.9.1 ships platforms for
three accelerators; this one runs the same trainer on a CPU. Memory figures are those of the process.
"""

import resource
from contextlib import nullcontext

import psutil
import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def _nothing(*_args, **_arguments) -> None:
    """Stands for what a CPU need not do."""


class CPUDeviceModule:
    """`torch.cpu` with the memory and generator calls that verl makes on a device module."""

    set_device = synchronize = empty_cache = reset_peak_memory_stats = staticmethod(_nothing)

    def __getattr__(self, name):
        return getattr(torch.cpu, name)

    def __eq__(self, other):
        # verl compares the device module with torch.cpu to skip its flops and memory counters.
        return other is torch.cpu or other is self

    __hash__ = object.__hash__

    def memory_allocated(self, *_):
        return psutil.Process().memory_info().rss

    memory_reserved = memory_allocated

    def max_memory_allocated(self, *_):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    max_memory_reserved = max_memory_allocated

    def set_rng_state(self, state, *_):
        torch.set_rng_state(state)


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """One CPU seen as one device, with gloo for collectives."""

    device_name = "cpu"
    vendor_name = "generic"
    device_module = CPUDeviceModule()

    set_device = synchronize = empty_cache = set_allocator_settings = staticmethod(_nothing)
    profiler_start = profiler_stop = cudart = staticmethod(_nothing)
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)

    def is_available(self):
        return True

    def is_platform_available(self, use_smi_check=False):
        # Never detected automatically: a machine with an accelerator must not fall back silently.
        return False

    def is_ipc_supported(self):
        return False

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg):
        return nullcontext()

    def ray_resource_name(self):
        # verl counts only GPU and NPU resources; the recipe tells Ray that one GPU exists.
        return "GPU"

    def ray_noset_envvars(self):
        return []
