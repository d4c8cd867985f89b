"""The class of advice for every error that the simulators can produce."""

from pathlib import Path

import pytest

from seal.method.interface.errors import error_class
from seal.method.interface.wording import wording
from tests.support.simulator_errors import failures

TABLE = [line.split("\t") for line in Path(__file__).with_name("simulator_errors.tsv").read_text().splitlines()]


def test_the_table_holds_every_error_that_the_simulators_can_produce():
    assert {(tool, result) for _, tool, result in TABLE} == set(failures())


@pytest.mark.parametrize(("advice", "tool", "result"), TABLE)
def test_an_error_has_its_class_of_advice(advice, tool, result):
    assert error_class(tool, result, {}) == advice


def test_every_class_is_used():
    classes = {name for name, entry in wording()["errors"].items() if "patterns" in entry}
    assert classes | {"execution"} == {advice for advice, _, _ in TABLE}


@pytest.mark.parametrize(
    ("tool", "result", "arguments", "advice"),
    [
        ("touch", '{"error": "touch: cannot touch \'not found\': File exists"}', {"file_name": "not found"}, "exists"),
        ("wc", '{"error": "wc: already closed: No such file"}', {"file_name": "already closed"}, "not_found"),
        ("mv", '{"error": "mv: path not allowed in destination. Provide"}', {"source": "path"}, "path"),
        ("get_symbol_by_name", '{"symbol": "Stock not found"}', {"name": "Acme"}, "not_found"),
        ("get_watchlist", "['Error: User not authenticated. Please log in to view the watchlist.']", {}, "login"),
        ("divide", "Error during execution: division by zero", {}, "value"),
        ("sort", "Error during execution: 'NoneType' object is not iterable", {}, "execution"),
    ],
)
def test_values_of_the_call_and_other_shapes_of_errors(tool, result, arguments, advice):
    assert error_class(tool, result, arguments) == advice
