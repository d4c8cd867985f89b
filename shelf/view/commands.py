"""The commands of this package and of the statistics below it, as `seal` lists them."""

from seal.cli.main import RESULTS, Entry

COMMANDS = {
    "report": Entry(RESULTS, "Summarise a run as text and curves.", "shelf.view.cli.report", extra="view"),
    "stats": Entry(RESULTS, "Tabulate and compare validation logs.", "shelf.statistics.cli.stats", extra="view"),
    "view": Entry(
        RESULTS,
        "Look at runs in a browser: curves, failures, groups, trajectories, cues.",
        "shelf.view.cli.view",
        extra="view",
    ),
}
