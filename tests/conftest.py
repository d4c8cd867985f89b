"""The order of the files: those that take longest come first, so that no worker is left with one of them at the end."""

SLOWEST = (
    "tests/e2e/test_loop.py",
    "shelf/lab/tests/experiment/test_report.py",
)


def pytest_collection_modifyitems(items):
    """Put the slowest files first; all other files keep their order."""
    places = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))
