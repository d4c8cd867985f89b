"""Rows with odd values: each is read or left out in a sentence, whatever stands in it."""

import copy
import json
import random
from pathlib import Path

import pytest

from seal.system.jsonl import Line, parse_lines
from shelf.lab.foreign.files import rollout_of
from shelf.lab.foreign.judged import judge, sentences
from shelf.lab.tests.foreign.test_files import FAULTLESS, SHAPES, UNREAD
from shelf.lab.tests.foreign.test_foreign import LOST, SHOWN, trajectory
from tests.attack.odd import VALUES, places

ROWS = [*SHAPES.values(), *FAULTLESS.values(), *UNREAD.values(), trajectory()]
ROWS += [row for row, _ in (*SHOWN.values(), *LOST.values())]
KEYS = ("type", "name", "arguments", "content", "properties", "required", "enum", "items", "role", "$ref", "output")
ODD = (*VALUES, "null", "[[", "<tool_call>", [{}], {"type": "tool_use"}, {"role": "assistant"}, {"type": ["string", 3]})


def changed(draw: random.Random) -> dict:
    """A row with up to three values replaced, written as text or left out, or with a key more."""
    row = copy.deepcopy(draw.choice(ROWS))
    for _ in range(draw.randint(1, 3)):
        *above, last = draw.choice(places(row) or [("messages",)])
        at = row
        for key in above:
            at = at[key]
        if isinstance(at, dict) and draw.random() < 0.3:
            at.pop(last, None)
            at |= {draw.choice(KEYS): copy.deepcopy(draw.choice(ODD))} if draw.random() < 0.5 else {}
        else:
            text = draw.random() < 0.2 and isinstance(at, dict) and last in at
            at[last] = json.dumps(at[last]) if text else copy.deepcopy(draw.choice(ODD))
    return json.loads(json.dumps(row))


@pytest.mark.parametrize("rows", [1_000, pytest.param(12_000, marks=pytest.mark.slow)])
def test_a_row_with_odd_values_is_read_or_left_out_in_a_sentence(rows):
    draw, read = random.Random(rows), 0
    for number in range(rows):
        row = changed(draw)
        found, left = parse_lines([Line(Path("rows.jsonl"), number, row)], rollout_of)
        assert len(found) + len(left) == 1 and all(str(each).strip() for each in left)
        for judged in judge([each for each in found if not each.replays], ""):
            json.dumps(judged.record.line()).encode()
            assert list(sentences([judged]))
            read += 1
    assert rows / 10 < read < rows * 0.9
