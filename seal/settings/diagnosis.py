"""`seal.diagnosis`: which labels a run learns from."""

from typing import Literal

from seal.settings.base import Count, Settings, Share

Taxonomy = Literal["paper", "release"]
Blame = Literal["observed", "own"]
Source = Literal["verifier", "random", "constant", "shuffled", "permuted"]


class DiagnosisSettings(Settings):
    """Labels and the window of the failure profile (docs/diagnosis.md)."""

    taxonomy: Taxonomy = "paper"
    """The set of labels: the paper's, or the smaller one of the public release."""
    source: Source = "verifier"
    """Where training labels come from: the diagnosis (`verifier`), or a control that could falsify the method."""
    constant: str = "state_mismatch"
    """The label that `source: constant` gives to every turn."""
    noise: Share = 0.0
    """The share of the labels of each step that becomes another label of the taxonomy."""
    blame: Blame = "observed"
    """Which failures count in C_t, the cues and w: all (`observed`), or only a turn's `own`, not inherited ones."""
    window: Count = 10
    """Steps that the failure profile C_t counts as recent."""
