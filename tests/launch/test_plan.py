"""Settings that cannot be cut into a training step."""

import pytest

from seal.launch.checks.plan import require_plan
from seal.system.errors import LaunchError
from tests.support.recipes import changed

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


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
        require_plan(changed(**values))
    assert named in str(error.value) and "\n" not in str(error.value)


def test_fixed_rows_that_do_not_divide_are_named():
    config = changed(
        actor_rollout_ref__actor__use_dynamic_bsz=False, actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu=3
    )
    with pytest.raises(LaunchError, match="ppo_micro_batch_size_per_gpu=3 does not divide the 16"):
        require_plan(config)
