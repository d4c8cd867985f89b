"""The commands of this package, as `seal` lists them."""

from seal.cli.main import PARTS, Entry

COMMANDS = {
    "tasks": Entry(PARTS, "Synthesise and check tasks of your own.", "shelf.testbed.cli.tasks", extra="testbed"),
    "policy": Entry(PARTS, "Make the small policy of the quickstart.", "shelf.testbed.cli.policy", extra="testbed"),
}
