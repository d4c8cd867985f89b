"""Values of references that nothing shows are found, and all of them are suspected or explained."""

import pytest

from env_service.environments.bfcl.catalog import load_tasks
from seal.cli.main import execute, load
from shelf.testbed.nowhere import values


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ("base_173", {(3, "close_ticket", "ticket_id", "ticket_001")}),
        ("miss_func_172", {(1, "register_credit_card", "expiration_date", "08/2025")}),
        ("base_178", {(3, "create_ticket", "priority", "4")}),
        ("base_67", {(2, "fillFuelTank", "fuelAmount", "39.5")}),  # computed from what is shown
        ("base_198", set()),  # a booking id that book_flight returns
        ("base_134", set()),  # a stock's symbol that a read-only call gives for its name
        ("base_20", set()),  # a difference of files, with a line break
        ("base_179", set()),  # a date in words, and an insurance type that nothing compares
        ("base_1", set()),
    ],
)
def test_a_value_comes_from_nowhere_if_neither_dialogue_documents_nor_reads_show_it(task, found):
    assert {each[1:] for each in values(load_tasks()[f"multi_turn_{task}"])} == found


@pytest.mark.slow
def test_every_value_from_nowhere_is_suspected_or_explained():
    assert execute(load("data"), ["check", "--sources"], "seal data check") == 0
