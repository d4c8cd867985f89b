"""The commands of this package, as `seal` lists them."""

from seal.cli.main import RESULTS, TRAINING, Entry

COMMANDS = {
    "experiment": Entry(
        TRAINING, "Plan, run and judge a matrix of runs: arms, seeds, effects.", "shelf.lab.cli.experiment", extra="lab"
    ),
    "probe": Entry(TRAINING, "Measure what a recipe's interface and weights can give a model.", "shelf.lab.cli.probe"),
    "rescore": Entry(
        RESULTS,
        "Judge stored episodes again by the present checker, taxonomy and reward.",
        "shelf.lab.cli.rescore",
        extra="lab",
    ),
    "verify": Entry(RESULTS, "Play a run again and say what agrees.", "shelf.lab.cli.verify", extra="lab"),
    "diagnose": Entry(
        RESULTS,
        "Label the turns of other programs' rollouts.",
        "shelf.lab.cli.diagnose",
        extra="lab",
    ),
}
