"""The rows and token budgets of one training step of a recipe, by arithmetic, before anything starts.

Pure. Sizes that do not divide, and budgets that contradict each other, are refused here (`seal plan` shows the rest).
"""

from omegaconf import DictConfig, OmegaConf

from seal.launch.recipe import count, total_steps
from seal.system.errors import LaunchError

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"


def require_plan(config: DictConfig) -> None:
    """LaunchError for the first number of the run or of a training step that does not fit."""
    total_steps(config, tasks=0)
    rows = rows_per_rank(config)
    _, message, *_ = budgets(config)
    if packed_tokens(config, message) is None:
        fixed_rows(config, rows)


def rows_per_rank(config: DictConfig) -> int:
    """Trajectories of one mini-batch on one data-parallel rank of the actor."""
    prompts, samples = count(config, "data.train_batch_size"), count(config, f"{_ROLLOUT}.n")
    mini = count(config, f"{_ACTOR}.ppo_mini_batch_size")
    if prompts % mini:
        raise LaunchError(
            f"data.train_batch_size={prompts} is not a multiple of {_ACTOR}.ppo_mini_batch_size={mini}: change one "
            "of them."
        )
    _, ranks, _ = device_parts(config)
    if mini * samples % ranks:
        raise LaunchError(
            f"{_ACTOR}.ppo_mini_batch_size x {_ROLLOUT}.n = {mini * samples} trajectories do not divide among {ranks} "
            "data-parallel ranks (trainer.n_gpus_per_node x trainer.nnodes, over "
            f"{_ACTOR}.ulysses_sequence_parallel_size): change one of them."
        )
    return mini * samples // ranks


def device_parts(config: DictConfig) -> tuple[int, int, int]:
    """Devices, data-parallel ranks of the actor, rollout engines."""
    per_node, nodes = count(config, "trainer.n_gpus_per_node"), count(config, "trainer.nnodes")
    devices = per_node * nodes
    ulysses = count(config, f"{_ACTOR}.ulysses_sequence_parallel_size")
    tensor = count(config, f"{_ROLLOUT}.tensor_model_parallel_size")
    engine = tensor * count(config, f"{_ROLLOUT}.data_parallel_size")
    engine *= count(config, f"{_ROLLOUT}.pipeline_model_parallel_size")
    if devices % ulysses:
        raise LaunchError(
            f"{_ACTOR}.ulysses_sequence_parallel_size={ulysses} does not divide the {devices} devices "
            "(trainer.n_gpus_per_node x trainer.nnodes): change one of them."
        )
    if ulysses > 1 and not config.actor_rollout_ref.model.use_remove_padding:
        raise LaunchError(
            f"{_ACTOR}.ulysses_sequence_parallel_size={ulysses} needs packed batches: set "
            "actor_rollout_ref.model.use_remove_padding=true."
        )
    if devices % engine or engine % min(per_node, engine):
        raise LaunchError(
            f"An engine of {engine} devices ({_ROLLOUT}.tensor_model_parallel_size={tensor}, times data_parallel_size "
            f"and pipeline_model_parallel_size) does not divide the {devices} devices of {nodes} nodes "
            "(trainer.n_gpus_per_node x trainer.nnodes): change one of them."
        )
    return devices, devices // ulysses, devices // engine


def budgets(config: DictConfig) -> tuple[int, int, int, int]:
    """Tokens of a first prompt, of a message, after the prompt, and of the engine."""
    prompt, response = count(config, "data.max_prompt_length"), count(config, "data.max_response_length")
    message = count(config, "seal.rollout.max_message_tokens")
    model = prompt + response
    if config.actor_rollout_ref.rollout.max_model_len is not None:
        model = count(config, f"{_ROLLOUT}.max_model_len")
    if message > response:
        raise LaunchError(
            f"seal.rollout.max_message_tokens={message} is more than data.max_response_length={response}, the "
            "budget of a whole trajectory: lower the former or raise the latter."
        )
    if prompt + response > model:
        raise LaunchError(
            f"data.max_prompt_length + data.max_response_length = {prompt + response} exceed "
            f"{_ROLLOUT}.max_model_len={model}: raise it, or lower one of the former."
        )
    batched = count(config, f"{_ROLLOUT}.max_num_batched_tokens")
    if not config.actor_rollout_ref.rollout.enable_chunked_prefill and batched < model:
        raise LaunchError(
            f"{_ROLLOUT}.max_num_batched_tokens={batched} is less than {_ROLLOUT}.max_model_len={model}, and without "
            f"chunked prefill a prompt is read in one pass: raise the former, or set "
            f"{_ROLLOUT}.enable_chunked_prefill=true."
        )
    return prompt, message, response, model


def packed_tokens(config: DictConfig, message: int) -> int | None:
    """Tokens of one micro-batch, None if it holds a fixed number of rows."""
    if not config.actor_rollout_ref.actor.use_dynamic_bsz:
        return None
    ulysses = config.actor_rollout_ref.actor.ulysses_sequence_parallel_size
    packed = count(config, f"{_ACTOR}.ppo_max_token_len_per_gpu") * ulysses
    if packed <= message:
        raise LaunchError(
            f"{_ACTOR}.ppo_max_token_len_per_gpu={packed // ulysses} leaves no room for a prompt beside a message of "
            f"seal.rollout.max_message_tokens={message}: raise the former or lower the latter."
        )
    for part in ("rollout", "ref"):
        key = f"actor_rollout_ref.{part}.log_prob_max_token_len_per_gpu"
        if count(config, key) * ulysses < packed:
            raise LaunchError(
                f"{key}={OmegaConf.select(config, key)} is less than {_ACTOR}.ppo_max_token_len_per_gpu="
                f"{packed // ulysses}, which bounds a training row: raise it."
            )
    return packed


def fixed_rows(config: DictConfig, rows_per_rank: int) -> int:
    """Rows of one micro-batch, if their number is fixed."""
    key = f"{_ACTOR}.ppo_micro_batch_size_per_gpu"
    rows = count(config, key)
    if rows_per_rank % rows:
        raise LaunchError(
            f"{key}={rows} does not divide the {rows_per_rank} trajectories of a mini-batch on each device: change it, "
            f"{_ACTOR}.ppo_mini_batch_size or {_ROLLOUT}.n."
        )
    for part in ("rollout", "ref"):
        count(config, f"actor_rollout_ref.{part}.log_prob_micro_batch_size_per_gpu")
    return rows
