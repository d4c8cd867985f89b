"""The order of the files: those that take longest come first, so that no worker is left with one of them at the end."""

SLOWEST = (
    "tests/e2e/test_loop.py",
    "tests/faults/test_liveness.py",
    "shelf/lab/tests/verifying/test_verify.py",
    "shelf/suites/tests/test_bfcl_command.py",
    "shelf/suites/tests/test_evaluate_harness.py",
    "shelf/suites/tests/test_tool_calls.py",
    "tests/backends/test_cpu_engine.py",
    "tests/faults/test_service_faults.py",
    "tests/training/test_advantages.py",
    "tests/rollout/test_harness.py",
    "shelf/view/tests/viewer/test_app.py",
    "shelf/lab/tests/experiment/test_runner.py",
    "shelf/authoring/tests/test_conformance.py",
    "tests/faults/test_two_runs.py",
    "shelf/suites/tests/test_made_tasks.py",
    "shelf/operate/tests/test_plan.py",
    "tests/launch/test_recipes.py",
    "tests/env_service/test_limits.py",
    "tests/env_service/test_http.py",
)
"""By what they take on two cores."""


def pytest_collection_modifyitems(items):
    """Put the slowest files first; all other files keep their order."""
    places = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))
