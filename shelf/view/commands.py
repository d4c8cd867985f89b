"""The commands of this package, as `seal` lists them."""

from seal.cli.main import RESULTS, Entry

COMMANDS = {
    "report": Entry(RESULTS, "Summarise a run as text and curves.", "shelf.view.cli.report", extra="view"),
    "view": Entry(
        RESULTS,
        "Look at runs in a browser: curves, failures, groups, trajectories, cues.",
        "shelf.view.cli.view",
        extra="view",
    ),
}
