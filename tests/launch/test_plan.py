"""The step plan: what a recipe's step is cut into, and which settings cannot be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from seal.launch.plan import step_plan
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from tests.support.recipes import composed

EXP = HOME / "exp"
SEAL = EXP / "SEAL.yaml"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def changed(**values):
    """The main run with other values; __ stands for a dot."""
    config = composed(SEAL)
    for key, value in values.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    return config


def test_the_papers_step():
    plan = step_plan(composed(SEAL))
    assert (plan.rows, plan.mini_batches, plan.optimizer_steps) == (256, 4, 4)
    assert (plan.devices, plan.ranks, plan.engines, plan.rows_per_rank) == (4, 4, 4, 16)
    assert (plan.message, plan.response, plan.model, plan.packed, plan.longest) == (1024, 4096, 16384, 16384, 13312)
    assert plan.most_micro_batches == 16 and plan.in_flight == 256


def test_a_sequence_over_several_devices_packs_more_and_divides_less():
    plan = step_plan(changed(actor_rollout_ref__actor__ulysses_sequence_parallel_size=2))
    assert (plan.ranks, plan.packed, plan.rows_per_rank) == (2, 32768, 32)
    assert plan.most_micro_batches == 16


def test_rows_of_a_fixed_number_are_counted():
    fixed = {
        f"{part}__log_prob_micro_batch_size_per_gpu": 2
        for part in ("actor_rollout_ref__rollout", "actor_rollout_ref__ref")
    }
    micro = {
        "actor_rollout_ref__actor__use_dynamic_bsz": False,
        "actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu": 1,
    }
    plan = step_plan(changed(**fixed, **micro))
    assert (plan.packed, plan.rows_per_micro_batch, plan.most_micro_batches) == (None, 1, 16)


def test_a_row_is_cut_below_the_engines_length():
    plan = step_plan(composed(EXP / "quickstart.yaml"))
    assert plan.longest == plan.packed == 1024


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.integers(1, 64),
    mini=st.integers(1, 16),
    samples=st.integers(1, 9),
    gpus=st.integers(1, 8),
    nodes=st.integers(1, 3),
    ulysses=st.integers(1, 4),
    tensor=st.integers(1, 4),
)
def test_a_plan_gives_every_row_to_one_rank_or_names_what_does_not_divide(
    prompts, mini, samples, gpus, nodes, ulysses, tensor
):
    config = changed(
        data__train_batch_size=prompts,
        actor_rollout_ref__actor__ppo_mini_batch_size=mini,
        actor_rollout_ref__rollout__n=samples,
        trainer__n_gpus_per_node=gpus,
        trainer__nnodes=nodes,
        actor_rollout_ref__actor__ulysses_sequence_parallel_size=ulysses,
        actor_rollout_ref__rollout__tensor_model_parallel_size=tensor,
    )
    devices = gpus * nodes
    try:
        plan = step_plan(config)
    except LaunchError as error:
        assert (
            prompts % mini
            or devices % ulysses
            or devices % tensor
            or tensor % min(gpus, tensor)
            or (mini * samples % (devices // ulysses))
        )
        assert "change one of them" in str(error)
        return
    assert plan.rows_per_rank * plan.ranks * plan.mini_batches == prompts * samples
    assert plan.engines * tensor == plan.ranks * ulysses == devices
    assert -(-plan.rows_per_rank // (plan.packed // plan.longest)) == plan.most_micro_batches


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"data__train_batch_size": 30}, f"{ACTOR}.ppo_mini_batch_size=8"),
        ({"data__train_batch_size": 0}, "data.train_batch_size=0"),
        ({"trainer__n_gpus_per_node": 3}, "trainer.n_gpus_per_node"),
        ({"actor_rollout_ref__rollout__tensor_model_parallel_size": 3}, f"{ROLLOUT}.tensor_model_parallel_size=3"),
        ({"actor_rollout_ref__actor__ulysses_sequence_parallel_size": 3}, f"{ACTOR}.ulysses_sequence_parallel_size=3"),
        (
            {
                "actor_rollout_ref__actor__ulysses_sequence_parallel_size": 2,
                "actor_rollout_ref__model__use_remove_padding": False,
            },
            "use_remove_padding=true",
        ),
        ({"actor_rollout_ref__actor__use_dynamic_bsz": False}, f"{ACTOR}.ppo_micro_batch_size_per_gpu=None"),
        ({"data__max_prompt_length": 16384}, f"{ROLLOUT}.max_model_len=16384"),
        ({"seal__rollout__max_message_tokens": 5000}, "data.max_response_length=4096"),
        ({"actor_rollout_ref__actor__ppo_max_token_len_per_gpu": 1000}, f"{ACTOR}.ppo_max_token_len_per_gpu=1000"),
        ({"actor_rollout_ref__ref__log_prob_max_token_len_per_gpu": 8192}, "ref.log_prob_max_token_len_per_gpu=8192"),
        ({"actor_rollout_ref__rollout__enable_chunked_prefill": False}, f"{ROLLOUT}.max_num_batched_tokens=8192"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_cut_or_contradicts_itself_is_one_sentence(values, named):
    with pytest.raises(LaunchError) as error:
        step_plan(changed(**values))
    assert named in str(error.value) and "\n" not in str(error.value)


def test_fixed_rows_that_do_not_divide_are_named():
    config = changed(
        actor_rollout_ref__actor__use_dynamic_bsz=False, actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu=3
    )
    with pytest.raises(LaunchError, match="ppo_micro_batch_size_per_gpu=3 does not divide the 16"):
        step_plan(config)
