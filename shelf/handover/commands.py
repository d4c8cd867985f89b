"""The commands of this package, as `seal` lists them."""

from seal.cli.main import PARTS, RESULTS, Entry

COMMANDS = {
    "export": Entry(
        RESULTS,
        "Turn a checkpoint into a model folder with a card, and the run's interface.",
        "shelf.handover.cli.export",
        extra="handover",
    ),
    "model": Entry(PARTS, "Get a pretrained model without a hub.", "shelf.handover.cli.model", extra="handover"),
}
