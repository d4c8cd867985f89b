"""The commands of this package, as `seal` lists them."""

from seal.cli.main import PARTS, Entry

COMMANDS = {
    "env": Entry(
        PARTS,
        "List environments, write a new one, and check that one keeps the contract.",
        "shelf.authoring.cli.env",
        extra="authoring",
    ),
}
