"""Named by `actor_rollout_ref.model.external_lib`: attention, heads, optimizers, the weight sender; a CPU's engine."""

from verl.utils.device import get_device_name
from verl.workers.rollout import base

from seal.backends import fused_head, packed_attention, resumed_optimizer  # noqa: F401

base._ROLLOUT_REGISTRY["vllm", "async"] = "seal.backends.weight_sender.WeightSender"
if get_device_name() == "cpu":
    from seal.backends import cpu_engine  # noqa: F401
