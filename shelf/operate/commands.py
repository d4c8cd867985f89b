"""The commands of this package, as `seal` lists them."""

from seal.cli.main import PARTS, TRAINING, Entry

COMMANDS = {
    "doctor": Entry(
        TRAINING,
        "Check whether a recipe can run on this machine, and say how to fix what is missing.",
        "shelf.operate.cli.doctor",
        extra="operate",
    ),
    "plan": Entry(
        TRAINING,
        "Print what a run of a recipe is and takes: batches, lengths, memory, hours.",
        "shelf.operate.cli.plan",
        extra="operate",
    ),
    "settings": Entry(
        TRAINING,
        "Explain the settings of a recipe: type, bounds, default and meaning.",
        "shelf.operate.cli.settings",
        extra="operate",
    ),
    "data": Entry(PARTS, "Prepare and check the tasks.", "shelf.operate.cli.data", extra="operate"),
}
