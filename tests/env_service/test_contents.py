"""The text of results whose parts are not all text."""

import pytest

from env_service.environments.kit.contents import contents_text

TEXT = {"type": "text", "text": "read"}
DOCUMENT = {"type": "resource", "resource": {"uri": "file:///a.md", "text": "LANTERN"}}


@pytest.mark.parametrize(
    ("parts", "structured", "text"),
    [
        ([TEXT, DOCUMENT], None, "read\nLANTERN"),
        ([], {"b": 1, "a": [2]}, '{"a": [2], "b": 1}'),
        ([TEXT], {"rows": 3}, 'read\n{"rows": 3}'),
        ([{"type": "text", "text": '{"rows": 3}'}], {"rows": 3}, '{"rows": 3}'),
        ([TEXT], {"result": "read"}, "read"),
        ([{"type": "text", "text": "1"}, {"type": "text", "text": "2"}], {"result": [1, 2]}, "1\n2"),
        ([{"type": "resource_link", "uri": "file:///a"}], None, '{"type": "resource_link", "uri": "file:///a"}'),
        ([{"type": "json", "data": {"ä": 1}}], None, '{"data": {"ä": 1}, "type": "json"}'),
        (["said"], None, "said"),
        ([], None, ""),
    ],
)
def test_a_result_keeps_all_that_its_parts_say(parts, structured, text):
    assert contents_text(parts, structured) == text


@pytest.mark.parametrize("kind", ["image", "resource"])
def test_two_pictures_are_not_the_same_and_no_data_is_shown(kind):
    pictures = [{"type": "image", "data": data} for data in ("QUJD", "REVG")]
    if kind == "resource":
        pictures = [{"type": kind, "resource": {"uri": "a", "blob": part["data"]}} for part in pictures]
    one, other = (contents_text([part]) for part in pictures)
    assert one != other and "QUJD" not in one
