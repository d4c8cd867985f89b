"""Named by `actor_rollout_ref.model.external_lib`: attention, the run's socket for weights; on a CPU, its engine."""

from verl.utils.device import get_device_name

from seal.backends import packed_attention, weight_socket  # noqa: F401

weight_socket.register()
if get_device_name() == "cpu":
    from seal.backends import cpu_engine  # noqa: F401
