"""Recipes compose, say what is wrong in one sentence, and differ only where they say."""

from dataclasses import asdict, fields
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seal.data.selection import Selection
from seal.interface.evolve import EvolveSettings
from seal.launch.errors import LaunchError
from seal.launch.recipe import HOME, compose_recipe
from seal.reweighting import ReweightSettings
from seal.rollout.settings import RolloutSettings
from seal.training.closed_loop import LoopSettings

RECIPES = sorted((HOME / "exp").glob("*.yaml")) + sorted((HOME / "exp" / "ablations").glob("*.yaml"))
QUICKSTART = HOME / "exp" / "quickstart.yaml"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: str(path.relative_to(HOME)))
def test_every_recipe_composes_and_its_settings_are_accepted(recipe):
    config = compose_recipe(recipe, [])
    settings = OmegaConf.to_container(config.seal)
    LoopSettings.from_config(settings)
    RolloutSettings(**settings["rollout"])
    assert config.trainer.v1.trainer_mode == "seal"
    assert config.data.train_batch_size % config.actor_rollout_ref.actor.ppo_mini_batch_size == 0


def test_the_shared_recipe_shows_every_setting_with_its_default():
    config = OmegaConf.to_container(compose_recipe(HOME / "exp" / "SEAL.yaml", []).seal)
    train = config["data"]["train"]
    assert set(train) == {field.name for field in fields(Selection)}
    assert Selection.from_config(train) == Selection()
    assert RolloutSettings(**config["rollout"]) == RolloutSettings()
    for shown, settings in ((config["interface"]["evolve"], EvolveSettings), (config["reweighting"], ReweightSettings)):
        assert set(shown) == {field.name for field in fields(settings)}
        assert settings.from_config(shown) == settings()


def test_overrides_reach_the_configuration():
    config = compose_recipe(QUICKSTART, ["seal.reweighting.alpha=0.5", "env_service.env_url=http://127.0.0.1:9"])
    assert config.seal.reweighting.alpha == 0.5
    assert config.env_service.env_url == "http://127.0.0.1:9"


def test_vanilla_differs_from_the_quickstart_in_seal_enabled_alone():
    vanilla = OmegaConf.to_container(compose_recipe(QUICKSTART, ["seal.enabled=false"]))
    full = OmegaConf.to_container(compose_recipe(QUICKSTART, []))
    assert vanilla["seal"].pop("enabled") is False and full["seal"].pop("enabled") is True
    assert vanilla == full


@pytest.mark.parametrize(
    ("recipe", "overrides", "named"),
    [
        (Path("exp/none.yaml"), [], "exp/none.yaml"),
        (QUICKSTART, ["trainer.n_gpus=3"], "did you mean trainer.n_gpus_per_node"),
        (QUICKSTART, ["seal.reweighting.alfa=3"], "seal.reweighting.alfa"),
        (QUICKSTART, ["alpha"], "key=value"),
        (QUICKSTART, ["trainer.experiment_name=???"], "trainer.experiment_name"),
    ],
)
def test_a_wrong_recipe_or_override_is_one_sentence(recipe, overrides, named):
    with pytest.raises(LaunchError) as error:
        compose_recipe(recipe, overrides)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_paper_settings_are_the_shared_defaults():
    config = compose_recipe(HOME / "exp" / "SEAL.yaml", [])
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert (actor.kl_loss_coef, actor.kl_loss_type, actor.clip_ratio, actor.clip_ratio_c) == (
        0.001,
        "low_var_kl",
        0.2,
        10,
    )
    assert (actor.grad_clip, actor.loss_agg_mode, actor.entropy_coeff) == (1.0, "token-mean", 0)
    assert (rollout.n, rollout.temperature, rollout.val_kwargs.temperature) == (8, 1.0, 0)
    assert asdict(ReweightSettings())["w_max"] == config.seal.reweighting.w_max == 2.0


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("vanilla", ("enabled",), False),
        ("without_environment", ("interface", "enabled"), False),
        ("without_reweighting", ("reweighting", "enabled"), False),
        ("without_closed_loop", ("closed_loop",), False),
        ("random_labels", ("diagnosis", "source"), "random"),
    ],
)
def test_an_ablation_differs_from_the_main_run_in_one_setting(name, path, value):
    full = OmegaConf.to_container(compose_recipe(HOME / "exp" / "SEAL.yaml", []))
    ablated = OmegaConf.to_container(
        compose_recipe(HOME / "exp" / "ablations" / f"{name}.yaml", ["trainer.experiment_name=SEAL"])
    )
    block = ablated["seal"]
    for key in path[:-1]:
        block = block[key]
    assert block[path[-1]] == value
    reference = full["seal"]
    for key in path[:-1]:
        reference = reference[key]
    block[path[-1]] = reference[path[-1]]
    assert ablated == full


def test_the_main_run_has_the_papers_sizes():
    config = compose_recipe(HOME / "exp" / "SEAL.yaml", [])
    assert (config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size) == (32, 8)
    assert (config.data.max_prompt_length, config.data.max_response_length) == (8192, 4096)
    assert config.actor_rollout_ref.rollout.max_model_len == 16384
    assert (config.trainer.n_gpus_per_node, config.trainer.total_epochs, config.trainer.test_freq) == (4, 6, 10)
    assert config.actor_rollout_ref.actor.optim.lr == 1e-6
