"""The tasks of exp/experiments/credit.yaml: new tasks of three to five requests, and shorter ones.

python -m benchmarks.turns FOLDER     # FOLDER/train.jsonl; FOLDER/held_out.jsonl, which is data/test_bed/turns.jsonl
"""

import sys
from itertools import chain
from pathlib import Path

from env_service.environments.bfcl.task_file import write_task_file
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from shelf.testbed.synthesis.sampler import SamplerSettings

LONG, SHORT = ({3: 0.4, 4: 0.3, 5: 0.3}, {1: 0.5, 2: 0.5})

if __name__ == "__main__":
    long, short = (SamplerSettings(turns=turns, categories={"base": 1.0}) for turns in (LONG, SHORT))
    trained = (synthesise(Grammar(), 128, 26, "train", long), synthesise(Grammar(), 64, 27, "train", short))
    write_task_file(chain.from_iterable(trained), Path(sys.argv[1], "train.jsonl"))
    write_task_file(synthesise(Grammar(), 160, 28, "values", long), Path(sys.argv[1], "held_out.jsonl"))
