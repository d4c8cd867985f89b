"""Named by `actor_rollout_ref.model.external_lib`: adds the CPU engine if the device is a CPU."""

from verl.utils.device import get_device_name

if get_device_name() == "cpu":
    from seal.backends import cpu_engine  # noqa: F401
