"""The commands of this package, as `seal` lists them."""

from seal.cli.main import RESULTS, Entry

COMMANDS = {
    "evaluate": Entry(
        RESULTS,
        "Evaluate a model, checkpoint or endpoint on the benchmark.",
        "shelf.suites.cli.evaluate",
        extra="suites",
    ),
}
