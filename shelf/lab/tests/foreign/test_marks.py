"""Explicit marks of failure in the results of any tools."""

import pytest

from shelf.error_marks import marks_failure


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
