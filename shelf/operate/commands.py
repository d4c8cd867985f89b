"""The commands of this package, as `seal` lists them."""

from seal.cli.main import TRAINING, Entry

COMMANDS = {
    "doctor": Entry(
        TRAINING,
        "Check whether a recipe can run on this machine, or print what its run takes.",
        "shelf.operate.cli.doctor",
        extra="operate",
    ),
    "settings": Entry(
        TRAINING,
        "Explain the settings of a recipe: type, bounds, default and meaning.",
        "shelf.operate.cli.settings",
        extra="operate",
    ),
}
