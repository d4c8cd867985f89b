"""`seal plan`: a step as a table."""

from typer.testing import CliRunner

from seal.launch.plan import step_plan
from seal.launch.recipe import compose_recipe
from seal.system import exits
from seal.system.paths import HOME
from shelf.operate.cli.plan import app
from shelf.operate.plan import lines


def test_the_command_prints_the_plan_of_the_recipe():
    own = ["actor_rollout_ref.rollout.n=4"]
    done = CliRunner().invoke(app, ["exp/quickstart.yaml", *own])
    said = [" ".join(line.split()) for line in done.output.splitlines()]
    expected = lines(step_plan(compose_recipe(HOME / "exp" / "quickstart.yaml", own)))
    assert done.exit_code == exits.FINISHED and all(f"{what} {amount}" in said for what, amount in expected)


def test_a_row_that_is_cut_says_by_what():
    recipes = (HOME / "exp" / "quickstart.yaml", HOME / "exp" / "SEAL.yaml")
    cut, whole = (lines(step_plan(compose_recipe(recipe, []))) for recipe in recipes)
    assert "ppo_max_token_len_per_gpu" in dict(cut)["tokens of a training row"]
    assert "cut" not in dict(whole)["tokens of a training row"]


def test_a_recipe_that_is_not_there_is_refused():
    done = CliRunner().invoke(app, ["exp/none.yaml"])
    assert done.exit_code == exits.REFUSED and "There is no recipe exp/none.yaml" in done.output
