"""An answer never fails on what a policy wrote."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_service.encoding import encode
from seal.method.diagnosis.evidence import CallEvidence

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters()), st.binary(), st.complex_numbers()
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()) | st.integers(), inner)
)


@settings(max_examples=40)
@given(VALUES)
def test_whatever_arguments_hold_becomes_json_that_can_be_read(value: Any) -> None:
    evidence = CallEvidence("tool", {"value": value}, True)
    read = json.loads(encode({"evidence": [evidence]}))
    assert read["evidence"][0]["name"] == "tool"
    json.dumps(read, ensure_ascii=False).encode("utf-8")


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("x\ud800y", "x\ufffdy"),
        (2**70, "an integer of 71 bits"),
        (2**63 - 1, 2**63 - 1),
        ({"a": "é", "b": [1.5, True, None]}, {"a": "é", "b": [1.5, True, None]}),
        ({1: "\ud800"}, {"1": "\ufffd"}),
    ],
)
def test_what_json_cannot_hold_is_replaced(value: Any, read: Any) -> None:
    assert json.loads(encode(value)) == read


def test_deep_nesting_is_cut() -> None:
    value: Any = "leaf"
    for _ in range(5000):
        value = [value]
    assert b"..." in encode(value)
