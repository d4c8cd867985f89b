"""`seal.reweighting`: how labels become weights on advantages (paper, section 3.4)."""

from typing import Annotated

from annotated_types import Ge
from pydantic import Field, NonNegativeFloat, PositiveFloat

from seal.settings.base import Count, NonZeroShare, Settings, Share


class ReweightSettings(Settings):
    """Weights derived from labels (docs/how-it-works.md)."""

    enabled: bool = True
    """`false` makes every weight 1."""
    rho: dict[str, PositiveFloat] = Field(default_factory=dict)
    """Utilities that differ from the declared ones (paper, Table 6), by label."""
    w_min: NonZeroShare = 0.5
    """The smallest weight of a trajectory (paper, section 3.4)."""
    w_max: Annotated[float, Ge(1)] = 2.0
    """The largest weight of a trajectory (paper, section 3.4)."""
    dynamic: bool = True
    """`true` lets rho follow the failure profile."""
    alpha: NonNegativeFloat = 1.0
    """The strength with which a weakness raises its utility."""
    beta: Share = 0.25
    """The share of the target in rho of the next step; 1 follows it at once."""
    confidence: Count = 32
    """The sightings of a label in the window of C_t at which its figures count in full."""
