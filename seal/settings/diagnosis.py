"""`seal.diagnosis`: which labels a run learns from."""

from typing import Literal

from seal.settings.base import Count, Settings

Source = Literal["verifier", "random", "permuted"]


class DiagnosisSettings(Settings):
    """Labels and the window of the failure profile (docs/how-it-works.md)."""

    taxonomy: str = "paper"
    """The set of labels: `paper`, the smaller one of the public `release`, or that of an extension (docs/extend.md)."""
    source: Source = "verifier"
    """Where training labels come from: the diagnosis (`verifier`), or a control that could falsify the method."""
    window: Count = 10
    """Steps that the failure profile C_t counts as recent."""
