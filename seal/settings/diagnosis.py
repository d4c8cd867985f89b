"""`seal.diagnosis`: which labels a run learns from."""

from typing import Literal

from seal.settings.base import Count, Settings

Taxonomy = Literal["paper", "release"]
Blame = Literal["observed", "own"]
Source = Literal["verifier", "random", "permuted"]


class DiagnosisSettings(Settings):
    """Labels and the window of the failure profile (docs/how-it-works.md)."""

    taxonomy: Taxonomy = "paper"
    """The set of labels: the paper's, or the smaller one of the public release."""
    source: Source = "verifier"
    """Where training labels come from: the diagnosis (`verifier`), or a control that could falsify the method."""
    blame: Blame = "observed"
    """Which failures count in C_t, the cues and w: all (`observed`), or only a turn's `own`, not inherited ones."""
    window: Count = 10
    """Steps that the failure profile C_t counts as recent."""
