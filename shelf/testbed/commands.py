"""The commands of this package, as `seal` lists them."""

from seal.cli.main import PARTS, Entry

COMMANDS = {
    "tasks": Entry(
        PARTS,
        "Synthesise and check tasks of your own.",
        "shelf.testbed.cli.tasks",
        extra="testbed",
        data_check="shelf.testbed.nowhere",
    ),
    "policy": Entry(PARTS, "Teach and adapt start policies.", "shelf.testbed.cli.policy", extra="testbed"),
}
