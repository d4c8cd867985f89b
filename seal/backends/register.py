"""Named by `actor_rollout_ref.model.external_lib`: attention, heads, optimizers, weights' socket; a CPU's engine."""

from verl.utils.device import get_device_name

from seal.backends import fused_head, packed_attention, resumed_optimizer, weight_socket  # noqa: F401

weight_socket.register()
if get_device_name() == "cpu":
    from seal.backends import cpu_engine  # noqa: F401
