"""Failures told by the text of a result, in every form the simulators have."""

import pytest

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.tools import Toolbox, parse_reference
from seal.method.diagnosis.results import reports_failure


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("cd", '{"error": "cd: a: No such directory"}'),
        ("cd", "Error during execution: GorillaFileSystem.cd() missing 1 required positional argument"),
        ("get_watchlist", "['Error: User not authenticated. Please log in to view the watchlist.']"),
        ("get_user_tickets", "[{'error': 'User not authenticated. Please log in to view tickets.'}]"),
        ("ticket_login", '{"success": false}'),
        ("message_login", '{"login_status": false, "message": "User ID \'x\' not found."}'),
        ("get_symbol_by_name", '{"symbol": "Stock not found"}'),
        ("trading_logout", '{"status": "No user is currently logged in"}'),
    ],
)
def test_failures(tool, text):
    assert reports_failure(tool, text)


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("ticket_get_login_status", '{"login_status": false}'),
        ("travel_get_login_status", '{"status": false}'),
        ("verify_traveler_information", '{"verification_status": false}'),
        ("authenticate_twitter", '{"authentication_status": false}'),
        ("cat", '{"file_content": "error: not found"}'),
        ("estimate_drive_feasibility_by_mileage", '{"canDrive": false}'),
        ("f", '{"error": null, "value": 3}'),
        ("f", '{"error_margin": 0.1}'),
        ("mkdir", "None"),
        ("find", '{"matches": ["error.log"]}'),
        ("get_tweet_comments", "[]"),
    ],
)
def test_successes(tool, text):
    assert not reports_failure(tool, text)


def test_no_reference_result_is_read_as_a_failure():
    failed = set()
    for task in load_tasks().values():
        toolbox = Toolbox(task)
        for name, arguments in (parse_reference(text) for turn in task.reference for text in turn):
            if reports_failure(name, toolbox.call(name, arguments).text):
                failed.add(name)
    assert failed == set()
