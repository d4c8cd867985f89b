"""docs/settings.md, as `seal settings` makes it."""

import pytest

from seal.settings import BLOCKS
from seal.settings.sentences import keys
from seal.system.paths import HOME
from shelf.operate.settings_page import settings_page


def test_the_page_of_settings_is_current():
    shown = (HOME / "docs" / "settings.md").read_text(encoding="utf-8")
    assert shown == settings_page(), "run `seal settings --out docs/settings.md`"
    assert all(f"`{key}`" in shown for name, block in BLOCKS.items() for key in keys(block, name))


def test_the_page_of_one_block_holds_the_blocks_within():
    page = settings_page("seal.interface")
    assert "## `seal.interface.evolve`" in page and "seal.rollout" not in page
    with pytest.raises(ValueError, match="choose from seal, "):
        settings_page("seal.nothing")
