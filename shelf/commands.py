"""The commands of the shelf, as `seal` lists them: `seal NAME` is `app` of PACKAGE/cli/NAME.py."""

from seal.cli.main import PARTS, RESULTS, TRAINING, Entry

_LISTED = (
    ("authoring", "env", PARTS, "List environments, write a new one, and check that one keeps the contract."),
    ("handover", "export", RESULTS, "Turn a checkpoint into a model folder with a card, and the run's interface."),
    ("handover", "model", PARTS, "Get a pretrained model without a hub."),
    ("lab", "experiment", TRAINING, "Plan, run and judge a matrix of runs: arms, seeds, effects."),
    ("lab", "probe", TRAINING, "Measure what a recipe's interface and weights can give a model."),
    ("lab", "rescore", RESULTS, "Judge stored episodes again by the present checker, taxonomy and reward."),
    ("lab", "verify", RESULTS, "Play a run again and say what agrees."),
    ("lab", "diagnose", RESULTS, "Label the turns of other programs' rollouts."),
    ("operate", "doctor", TRAINING, "Check whether a recipe can run on this machine, and how to fix what is missing."),
    ("operate", "plan", TRAINING, "Print what a run of a recipe is and takes: batches, lengths, memory, hours."),
    ("operate", "settings", TRAINING, "Explain the settings of a recipe: type, bounds, default and meaning."),
    ("operate", "data", PARTS, "Prepare and check the tasks."),
    ("suites", "evaluate", RESULTS, "Evaluate a model on the benchmark, another environment or an official suite."),
    ("testbed", "tasks", PARTS, "Synthesise and check tasks of your own."),
    ("testbed", "policy", PARTS, "Teach and adapt start policies."),
    ("view", "report", RESULTS, "Summarise a run as text and curves."),
    ("statistics", "stats", RESULTS, "Tabulate and compare validation logs."),
    ("view", "view", RESULTS, "Look at runs in a browser: curves, failures, groups, trajectories, cues."),
)
_EXTRAS = {"handover": "handover"}
"""The extra that a package's commands need, if it is not `train`."""

COMMANDS = {
    name: Entry(section, summary, f"shelf.{package}.cli.{name}", _EXTRAS.get(package, "train"))
    for package, name, section, summary in _LISTED
}
