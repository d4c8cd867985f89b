"""`seal.reweighting`: how labels become weights on advantages (paper, section 3.4)."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from annotated_types import Ge
from pydantic import AllowInfNan, Field, field_validator, model_validator

from seal import labels
from seal.settings.base import Amount, Count, NonNegative, NonZeroShare, Positive, Settings, Share

AtLeastOne = Annotated[float, Ge(1)]


class BudgetSettings(Settings):
    """A limit on how far weights move a batch; the defaults change nothing."""

    strength: Share = 1.0
    """Softens each weight: w becomes 1 + strength (w - 1)."""
    low: Share = 0.0
    """The smallest weight after softening."""
    high: Annotated[AtLeastOne, AllowInfNan()] = float("inf")
    """The largest weight after softening."""
    renormalise: bool = False
    """`true` divides the weights by their mean over the weighted trajectories and clips once more."""


class ReweightSettings(Settings):
    """How labels become weights (docs/reweighting.md)."""

    enabled: bool = True
    """`false` makes every weight 1."""
    rho: dict[str, Positive] = Field(default_factory=dict)
    """Utilities that differ from the declared ones (paper, Table 6), by label."""
    w_min: NonZeroShare = 0.5
    """The smallest weight of a trajectory."""
    w_max: AtLeastOne = 2.0
    """The largest weight of a trajectory."""
    dynamic: bool = True
    """`true` lets rho follow the failure profile."""
    alpha: NonNegative = 1.0
    """How strongly a weakness raises its utility."""
    beta: Share = 0.25
    """The share of the target in rho of the next step; 1 follows it at once."""
    confidence: Count = 32
    """The sightings of a label in the window at which its figures count in full."""
    apply_to: Literal["all", "positive", "negative"] = "all"
    """The sign of the advantages that are weighted."""
    warmup_steps: Amount = 0
    """The number of first steps with weight 1."""
    renormalise: Literal["none", "all", "nonzero", "signs"] = "none"
    """Scales the weights of a batch to a mean of 1: over all trajectories, over those with a nonzero advantage, or by
    sign, so that the sums of positive and of negative advantages stay what they are. `per_turn` counts turns."""
    budget: BudgetSettings = BudgetSettings()
    """A limit on how far weights move a batch."""
    per_turn: bool = False
    """`true` weights the tokens of each turn by the utility of that turn's label."""
    sign_aware: bool = False
    """`true` weights only positive advantages by good labels, and only negative ones by failure labels."""

    @model_validator(mode="after")
    def _one_renormalisation(self) -> Self:
        if self.renormalise != "none" and self.budget.renormalise:
            raise ValueError("set either renormalise or budget.renormalise, not both")
        return self

    @field_validator("rho")
    @classmethod
    def _labels_are_declared(cls, rho: Mapping[str, float]) -> Mapping[str, float]:
        for label in rho:
            labels.get(label)
            if label in labels.EXCLUDED:
                raise ValueError(f"{label} is never weighted; remove it")
        return rho
