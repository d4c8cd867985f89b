"""The step plan: what a recipe's step is cut into."""

from hypothesis import given, settings
from hypothesis import strategies as st

from seal.system.errors import LaunchError
from seal.system.paths import HOME
from shelf.operate.step import step_plan
from tests.support.recipes import SEAL, changed, composed

EXP = HOME / "exp"


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


@settings(max_examples=60)
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
