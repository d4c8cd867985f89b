"""`seal settings`, and the page of the site."""

import re

import pytest
from typer.testing import CliRunner

from seal.settings import BLOCKS
from seal.settings.sentences import keys
from seal.system.paths import HOME
from shelf.operate.cli.settings import app
from shelf.operate.settings_page import explained, settings_page


def test_the_page_has_every_key_and_its_links_lead_to_pages():
    shown = settings_page()
    assert all((HOME / "docs" / page).is_file() for page in re.findall(r"\]\(([^)#]+)", shown))
    assert all(f"`{key}`" in shown for name, block in BLOCKS.items() for key in keys(block, name))


def test_a_block_of_a_recipe_is_explained_with_its_values(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("defaults: [quickstart, _self_]\nseal: {interface: {evolve: {max_labels: 5}}}\n")
    said = CliRunner().invoke(app, [str(mine), "seal.interface"]).output
    assert "seal.interface.evolve.max_labels = 5  (whole number, at least 0, default 3)" in said
    assert len(said.splitlines()) == 2 * len(list(keys(BLOCKS["seal"].model_fields["interface"].annotation, ""))) - 2
    assert explained("seal.seed").startswith("seal.seed  (whole number, default 0)\n    The seed of the run")


@pytest.mark.parametrize(
    ("names", "says"), [(["seal.sed"], "did you mean seal.seed?"), (["none.yaml", "seal.seed"], "no recipe none.yaml")]
)
def test_an_unknown_name_is_refused_in_one_sentence(names, says):
    said = CliRunner().invoke(app, names)
    assert said.exit_code == 2 and says in said.output
