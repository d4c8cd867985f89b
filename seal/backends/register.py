"""Named by `actor_rollout_ref.model.external_lib`: sends weights over the run's socket; on a CPU, adds its engine."""

from verl.utils.device import get_device_name

from seal.backends import weight_socket

weight_socket.register()
if get_device_name() == "cpu":
    from seal.backends import cpu_engine  # noqa: F401
