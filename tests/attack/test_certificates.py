"""A certificate with a changed value and renewed hashes is refused in a sentence, or verified without an error."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shelf.lab.certificate.file import write
from shelf.lab.certificate.verify import verify
from tests.attack.odd import changed


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_odd_value_is_more_than_a_refusal(contents, url, tmp_path, data):
    number = data.draw(st.integers(0, len(contents) - 1))
    kind, value = contents[number]
    forged = [*contents[:number], (kind, data.draw(changed(value))), *contents[number + 1 :]]
    write(forged, tmp_path / "forged.seal.gz")
    try:
        verify(tmp_path / "forged.seal.gz", url=url)
    except ValueError as refusal:
        assert str(refusal)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_flipped_bit_passes(played, contents, url, tmp_path, place, bit):
    raw = bytearray((played / "whole.seal.gz").read_bytes())
    raw[10 + int(place * (len(raw) - 10))] ^= 1 << bit  # behind gzip's header, whose time and system mean nothing
    (tmp_path / "flipped.seal.gz").write_bytes(raw)
    with pytest.raises(ValueError, match=r"flipped\.seal\.gz|damaged"):
        found = verify(tmp_path / "flipped.seal.gz", url=url)
        raise ValueError("damaged" if not found.holds else "unnoticed")
