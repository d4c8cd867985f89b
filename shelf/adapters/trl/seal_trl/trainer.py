"""GRPO with SEAL's weights on the advantages (paper, section 3.4)."""

from typing import Any

from trl import GRPOTrainer

from seal.method.reweighting import initial_rho, weight
from seal.settings.reweighting import ReweightSettings

RHO = initial_rho(ReweightSettings())
"""The utilities of the paper's Table 6; here they do not change with a profile."""


class SealTrainer(GRPOTrainer):
    """Multiplies each rollout's advantage by w of its labels; a reward cannot, because GRPO subtracts the mean."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        scored = super()._generate_and_score_completions(inputs)
        w = [weight(each["labels"], RHO, ReweightSettings()) for each in inputs]  # TRL put the labels there
        if self.model.training:
            scored["advantages"] = scored["advantages"] * scored["advantages"].new_tensor(w)
            self._metrics["train"]["seal/w"].append(sum(w) / len(w))
        return scored
