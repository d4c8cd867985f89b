"""The device that tests/gpu runs on."""

import torch

from seal.launch.checks.preflight import FALLBACK
from seal.system.paths import HOME

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
RECIPE = HOME / "exp" / ("gpu_smoke.yaml" if CUDA else "quickstart.yaml")
ATTENTION = "actor_rollout_ref.model.override_config.attn_implementation"
FUSED = (
    "actor_rollout_ref.model.use_fused_kernels=true",
    "actor_rollout_ref.model.fused_kernel_options.impl_backend=torch",
)
WITHOUT_FLASH = (f"{ATTENTION}={FALLBACK}", *FUSED)
"""What the launcher sets where flash-attn is missing (`preflight.choose_attention`)."""
