"""Failures told by the text of a result, in every form the simulators have."""

import pytest

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.tools import Toolbox, parse_reference
from seal.method.diagnosis.results import marks_failure, reports_failure


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


@pytest.mark.parametrize(
    "text",
    [
        '{"isError": true, "content": []}',
        '{"is_error": true}',
        '{"status": "error", "data": null}',
        '{"data": null, "error": "no such file"}',
        "[{'error': 'User not authenticated.'}]",
        "Error: no such file",
        "Error executing tool remove_item: it is not on the list.",
        "requests.exceptions.ConnectionError: refused",
        "Traceback (most recent call last):\n  File 'a'\nKeyError: 1",
        "Error: the command failed\n    at run (a.js:1)\nGive another one.",
        "Error: 404",
        "Error: 0x80070005 access denied",
        '{"error": "no such order"}',
        '{"error": "No error handler is known for 7"}',
    ],
)
def test_explicit_marks_of_failure(text):
    assert marks_failure(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"error": 0, "data": [1]}',
        '{"errors": 0, "warnings": 2}',
        '{"error": {}}',
        '{"error": "none", "data": 1}',
        '{"error": "No error"}',
        '{"errors": 2, "error": "0 errors found."}',
        '{"error": false}',
        '{"isError": false, "status": "ok"}',
        '{"job": 3, "status": "ERROR", "isError": false}',
        '{"success": true, "error": "deprecated: use v2"}',
        '{"error": "-", "data": 1}',
        '{"errors": [], "ok": true}',
        "ERROR 12:00 disk\nINFO ok",
        "Error budget: 99.9 %",
        "Error handling: see chapter 3",
        "Error: none",
        '{"success": false, "reason": "sold out"}',
        "Stock not found",
        "",
        "Error: 0, warnings: 3",
        "Error: 0.05",
        "MeanSquaredError: 0.12\nR2: 0.98",
        "Error: timeout (1/3)\n2026-01-02T10:00:00Z INFO connected",
        '{"error": "no errors were found"}',
        '{"error": "0 errors, 2 warnings"}',
        '{"error": "NOERROR", "answers": []}',
        '{"error": "No issues found."}',
        '{"error": "undefined", "id": 1}',
        '{"error": "±0.05", "value": 3}',
        '{"error": "0x00000000"}',
        '{"error": "[]"}',
        '{"error": "no"}',
        '{"error": "The operation completed successfully."}',
        '{"ok": true, "error": "deprecated: use v2"}',
        '{"status": "success", "error": "cache missed"}',
        '[{"time": "10:00", "level": "info", "error": "disk full"}]',
        '[{"id": 7, "status": "error"}]',
    ],
)
def test_words_about_errors_are_no_failures(text):
    assert not marks_failure(text)
