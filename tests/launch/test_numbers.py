"""Numbers that make a run senseless are refused or told before anything starts, with the reason."""

import math

import pytest
from omegaconf import OmegaConf

from seal.cli.main import execute, load
from seal.launch.checks import preflight
from seal.launch.checks.numbers import KINDS, numbers, table, unusual
from seal.launch.recipe import Recipe
from seal.settings import EnvServiceSettings, SealSettings, SettingsError
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from tests.support.recipes import composed

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
OURS = {"seal": SealSettings, "env_service": EnvServiceSettings}
FREE = {
    "seal.": "its block has its range",
    "env_service.": "its block has its range",
    "critic.": "there is no critic",
    "distillation.": "there is none",
    "reward.": "the environment gives the reward",
    "actor_rollout_ref.ref.": "it follows the actor",
    f"{ACTOR}.policy_loss.": "of losses that no recipe chooses",
    f"{ACTOR}.tau_": "of losses that no recipe chooses",
    f"{ACTOR}.optim.total_training_steps": "verl sets it",
    f"{ACTOR}.profiler.": "it measures",
    f"{ACTOR}.qat.": "it is off",
    f"{ACTOR}.fsdp_config.qat.": "it is off",
    f"{ACTOR}.fsdp_config.turbo_config.": "it is off",
    f"{ROLLOUT}.nnodes": "rollouts share the trainer's devices",
    f"{ROLLOUT}.n_gpus_per_node": "rollouts share the trainer's devices",
    f"{ROLLOUT}.multi_turn.": "SEAL's agent loop plays the dialogues",
    f"{ROLLOUT}.moe_load_balance_metrics_interval": "it measures",
    f"{ROLLOUT}.prometheus.": "it measures",
    f"{ROLLOUT}.mtp.": "it is off",
    f"{ROLLOUT}.qat.": "it is off",
    f"{ROLLOUT}.disaggregation.": "it is off",
    "actor_rollout_ref.model.tiled_mlp.": "it is off",
    "actor_rollout_ref.model.mtp.": "it is off",
    "actor_rollout_ref.model.lora.": "it is Megatron's",
    "data.image_patch_size": "there are no images",
    "algorithm.filter_groups.": "it is off",
    "algorithm.pf_ppo.": "it is off",
    "transfer_queue.metrics.": "it measures",
    "transfer_queue.backend.MooncakeStore.": "it is off",
    "trainer.v1.separate_async.": "it is another trainer's",
    "global_profiler.": "it measures",
}
"""Numbers that decide nothing here, by the beginning of their keys: any finite one will do."""


@pytest.fixture(scope="module")
def base() -> Recipe:
    return Recipe.of(composed(HOME / "exp" / "quickstart.yaml"))


def said(base: Recipe, key: str, value: float) -> str:
    """Return the checks' message about a recipe with another number: an error, else warnings, else nothing."""
    config, block = base.config, OURS.get(key.split(".")[0])
    path = key.replace("[", ".").replace("]", "")
    before = OmegaConf.select(config, path)
    OmegaConf.update(config, path, value)
    try:
        if block is not None:
            block.of(OmegaConf.to_container(config))
            return ""
        recipe = Recipe(config, base.settings, base.service)
        recipe.__dict__["rows"] = base.rows  # no number of verl's changes them
        return "\n".join(preflight.fit(recipe)[1])
    except (LaunchError, SettingsError) as error:
        return f"error: {error}"
    finally:
        OmegaConf.update(config, path, before)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        (f"{ROLLOUT}.n", 0, "error: actor_rollout_ref.rollout.n=0 must be a whole number of at least 1."),
        (f"{ROLLOUT}.tensor_model_parallel_size", 0, "size=0 must be a whole number of at least 1."),
        (f"{ROLLOUT}.agent.num_workers", 0, "num_workers is 0; it must be a whole number of at least 1"),
        (f"{ROLLOUT}.n", 1, "a group of one has no baseline"),
        (f"{ROLLOUT}.temperature", -1, "error: actor_rollout_ref.rollout.temperature is -1; it must be above 0"),
        (f"{ROLLOUT}.temperature", 0, "error: actor_rollout_ref.rollout.temperature is 0; it must be above 0"),
        (f"{ROLLOUT}.top_p", 2, "error: actor_rollout_ref.rollout.top_p is 2; it must be above 0 and at most 1"),
        (f"{ROLLOUT}.top_p", 0.9, "actor_rollout_ref.rollout.top_p is 0.9, and 1 is usual"),
        (f"{ACTOR}.optim.lr", math.nan, "error: actor_rollout_ref.actor.optim.lr is nan; it must be a finite number."),
        (f"{ACTOR}.optim.lr", -1, "error: actor_rollout_ref.actor.optim.lr is -1; it must be above 0"),
        (f"{ACTOR}.optim.betas[1]", 1, "error: actor_rollout_ref.actor.optim.betas[1] is 1"),
        (f"{ACTOR}.clip_ratio", -1, "error: actor_rollout_ref.actor.clip_ratio is -1; it must be at least 0"),
        (f"{ACTOR}.grad_clip", 0, "error: actor_rollout_ref.actor.grad_clip is 0; it must be above 0"),
        (f"{ACTOR}.entropy_coeff", -math.inf, "error: actor_rollout_ref.actor.entropy_coeff is -inf"),
        ("trainer.save_freq", 0, "error: trainer.save_freq is 0; it must be -1 or a whole number of at least 1"),
        ("trainer.test_freq", 0.5, "error: trainer.test_freq is 0.5; it must be -1 or a whole number of at least 1"),
        ("seal.reweighting.alpha", math.nan, "error: seal.reweighting.alpha is nan"),
        ("algorithm.adv_estimator", "gae", "error: algorithm.adv_estimator=gae"),
        ("critic.enable", True, "error: critic.enable is true; it must be null or false"),
    ],
)
def test_a_number_that_makes_a_run_senseless_is_refused_or_told_with_its_reason(base, key, value, sentence):
    assert sentence in said(base, key, value) and "\n" not in said(base, key, value)


def test_the_table_knows_every_key_and_kind(base):
    found = dict(numbers(OmegaConf.to_container(base.config)))
    large = dict(numbers(OmegaConf.to_container(composed(HOME / "exp" / "SEAL.yaml"))))
    beyond = {key for key in table() if key not in found and key not in large}
    assert {line.kind for line in table().values()} <= {*KINDS} and unusual(base) == ()
    unset = {f"{ROLLOUT}.engine_kwargs.vllm.block_size", "ray_kwargs.ray_init.num_cpus"}  # of these two recipes
    assert beyond <= unset
    assert {key for key in {**found, **large} if key not in table() and not key.startswith(tuple(FREE))} == set()


@pytest.mark.slow
def test_every_number_of_a_recipe_is_refused_told_usual_or_free(base):
    keys = [key for key, _ in numbers(OmegaConf.to_container(base.config))]
    for key in keys:
        assert said(base, key, math.nan).startswith("error: "), key
        for value in (-1, 0, 1e30):
            line, told = table().get(key), said(base, key, value)
            if told.startswith("error: "):
                continue
            if line is None:
                assert key.startswith(tuple(FREE)) and not told, (key, value)
            elif not told:
                low, high = line.usual or (-math.inf, math.inf)
                assert low <= value <= high and KINDS[line.kind][1](value) and value < 1e30, (key, value)


def test_a_rehearsal_and_a_plan_say_the_same(capsys, monkeypatch):
    monkeypatch.chdir(HOME)
    warned, wrong = ["exp/quickstart.yaml", f"{ACTOR}.entropy_coeff=-0.5"], f"{ACTOR}.optim.lr=nan"
    warning, refusal = f"{ACTOR}.entropy_coeff is -0.5, and 0 to 1 is usual", "lr is nan; it must be a finite number."
    assert execute(load("train"), [*warned, "--dry-run"], "seal train") == 0
    assert warning in capsys.readouterr().out.replace("\n", " ")
    assert execute(load("train"), [*warned, wrong, "--dry-run"], "seal train") == 1
    assert refusal in capsys.readouterr().out.replace("\n", " ")
    assert execute(load("plan"), [*warned, wrong], "seal plan") == 1
    out = capsys.readouterr().out.replace("\n", " ")
    assert warning in out and refusal in out
