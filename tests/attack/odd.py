"""Values that no program expects, and documents in which one of them stands in place of a good one."""

import copy
from typing import Any

from hypothesis import strategies as st

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, -(2**70), 10**400, 1e308, float("inf"), float("nan"), "", "\x00", "\ud800", "../../etc",
    "x" * 5000, "'; DROP TABLE trajectory; --", "<script>alert(1)</script>", [], {}, [None], [[]], {"": {}}, {"a": [1]},
)  # fmt: skip


def places(document: Any, above: tuple = ()) -> list[tuple]:
    """The paths of a document's values."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [path for key, item in items for path in ((*above, key), *places(item, (*above, key)))]


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """The document with up to three values replaced, or left out."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        known = places(document)
        if not known:
            break
        *above, last = draw(st.sampled_from(known))
        place = document
        for key in above:
            place = place[key]
        if isinstance(place, dict) and draw(st.booleans()):
            del place[last]
        else:
            place[last] = copy.deepcopy(draw(st.sampled_from(VALUES)))
    return document
