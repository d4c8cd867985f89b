"""BFCL's multi-turn tasks, verdict and labels, and SEAL's weights, in TRL: a `SealSpec` for a `GRPOTrainer`."""

from seal_trl.spec import SealSpec
from seal_trl.trainer import SealTrainer

__all__ = ["SealSpec", "SealTrainer"]
