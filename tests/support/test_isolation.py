"""`make test` gives the same result when the packages of the tutorials are installed."""

import sysconfig
from importlib import metadata

from seal.method.diagnosis.extension import EXTENSIONS
from tests.support.extension import installed
from tests.support.isolation import hide_other_packages


def test_an_installed_extension_is_not_seen_and_a_test_s_own_is(tmp_path, monkeypatch):
    for name in ("site", "own"):
        (tmp_path / name).mkdir()
        installed(tmp_path / name)
    monkeypatch.setattr(metadata, "distributions", metadata.distributions)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"purelib": str(tmp_path / "site")})
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert "repeated" in metadata.entry_points(group=EXTENSIONS).names
    hide_other_packages()
    assert "repeated" not in metadata.entry_points(group=EXTENSIONS).names
    monkeypatch.syspath_prepend(tmp_path / "own")
    assert "repeated" in metadata.entry_points(group=EXTENSIONS).names
