"""Without flash-attn training is only slower: CUDA recipes fall back to torch's own, and say so."""

import pytest
from omegaconf import OmegaConf

from seal.launch.checks.devices import flash_attn_problem
from seal.launch.checks.preflight import ATTENTION, FALLBACK, FLASH, choose_attention
from seal.launch.recipe import Recipe
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from tests.support.recipes import composed

SEAL = HOME / "exp" / "SEAL.yaml"


@pytest.fixture(scope="module")
def problem():
    """Why flash-attn cannot be imported here; these tests are for machines without it."""
    found = flash_attn_problem()
    if found is None:
        pytest.skip("flash-attn is installed here, so nothing falls back")
    return found


def test_a_cuda_recipe_falls_back_and_says_why(problem):
    asked = composed(SEAL)
    recipe, warning = choose_attention(Recipe.of(asked))
    config = recipe.config
    assert OmegaConf.select(asked, ATTENTION) == FLASH
    assert OmegaConf.select(config, ATTENTION) == FALLBACK
    assert problem in warning and "docs/operate.md#flash-attn" in warning
    # Packed batches stay: verl packs without flash-attn too.
    assert config.actor_rollout_ref.model.use_remove_padding and config.actor_rollout_ref.model.use_fused_kernels


def test_sequence_parallelism_cannot_fall_back(problem):
    recipe = Recipe.of(composed(SEAL, "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2"))
    with pytest.raises(LaunchError, match="ulysses_sequence_parallel_size=2"):
        choose_attention(recipe)


def test_what_asks_for_another_attention_keeps_it():
    for recipe, overrides in ((HOME / "exp" / "quickstart.yaml", ()), (SEAL, (f"{ATTENTION}=eager",))):
        asked = Recipe.of(composed(recipe, *overrides))
        assert choose_attention(asked) == (asked, None)
