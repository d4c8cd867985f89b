"""`seal.diagnosis`: which labels a run learns from."""

from __future__ import annotations

from typing import Literal

from seal.settings.base import Count, Settings

Taxonomy = Literal["paper", "release"]
Source = Literal["verifier", "random", "constant", "shuffled"]


class DiagnosisSettings(Settings):
    """Labels and the window of the failure profile (docs/diagnosis.md)."""

    taxonomy: Taxonomy = "paper"
    """The set of labels: the paper's, or the smaller one of the public release."""
    source: Source = "verifier"
    """Where training labels come from: the diagnosis (`verifier`), or a control that could falsify the method."""
    window: Count = 10
    """Steps that the failure profile C_t counts as recent."""
