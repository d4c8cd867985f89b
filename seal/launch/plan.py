"""The step plan: what one training step of a recipe does, by arithmetic, before anything starts.

Pure: a resolved configuration in, rows, batches and token budgets out. Sizes that do
not divide, and budgets that contradict each other, are refused here in one sentence;
the launcher's checks, the shelf and the tests share it.
"""

from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf

from seal.system.errors import LaunchError

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"


@dataclass(frozen=True)
class StepPlan:
    """One training step, in rows (trajectories), devices and tokens.

    ranks: data-parallel parts of the actor; engines: rollout replicas. rows_per_rank:
    rows of one mini-batch on one rank. packed: tokens of one micro-batch, None if
    micro-batches hold a fixed number of rows. longest: tokens that a training row
    can reach; prompt, message, response, model: the budgets of a first prompt, an
    assistant message, everything after the prompt, and the engine. most_micro_batches:
    of one mini-batch on one rank, if every row is as long as it can be.
    in_flight: trajectories that are played at a time. engine_slots: those that an
    engine generates for at a time.
    """

    prompts: int
    samples: int
    devices: int
    ranks: int
    engines: int
    mini_batches: int
    optimizer_steps: int
    rows_per_rank: int
    most_micro_batches: int
    rows_per_micro_batch: int | None
    prompt: int
    message: int
    response: int
    model: int
    packed: int | None
    longest: int
    in_flight: int
    engine_slots: int

    @property
    def rows(self) -> int:
        """Trajectories per step."""
        return self.prompts * self.samples


def total_steps(config: DictConfig, tasks: int) -> int:
    """The step with which a run on this many training tasks ends; verl drops the incomplete batch of an epoch."""
    trainer = config.trainer
    if trainer.total_training_steps is not None:
        return count(config, "trainer.total_training_steps")
    return tasks // count(config, "data.train_batch_size") * count(config, "trainer.total_epochs")


def step_plan(config: DictConfig) -> StepPlan:
    """The plan of a resolved configuration; LaunchError for the first thing that does not fit."""
    prompts, samples = count(config, "data.train_batch_size"), count(config, f"{_ROLLOUT}.n")
    mini = count(config, f"{_ACTOR}.ppo_mini_batch_size")
    if prompts % mini:
        raise LaunchError(
            f"data.train_batch_size={prompts} is not a multiple of {_ACTOR}.ppo_mini_batch_size={mini}: change one "
            "of them."
        )
    devices, ranks, engines = _devices(config)
    if mini * samples % ranks:
        raise LaunchError(
            f"{_ACTOR}.ppo_mini_batch_size x {_ROLLOUT}.n = {mini * samples} trajectories do not divide among {ranks} "
            "data-parallel ranks (trainer.n_gpus_per_node x trainer.nnodes, over "
            f"{_ACTOR}.ulysses_sequence_parallel_size): change one of them."
        )
    rows_per_rank = mini * samples // ranks
    prompt, message, response, model = _budgets(config)
    packed = _packed(config, message)
    longest = min(prompt + response, model, packed or model)
    fixed = None if packed else _fixed_rows(config, rows_per_rank)
    at_once = fixed or packed // longest
    workers = count(config, f"{_ROLLOUT}.agent.num_workers") * count(config, "seal.rollout.concurrency")
    return StepPlan(
        prompts=prompts,
        samples=samples,
        devices=devices,
        ranks=ranks,
        engines=engines,
        mini_batches=prompts // mini,
        optimizer_steps=prompts // mini * count(config, f"{_ACTOR}.ppo_epochs"),
        rows_per_rank=rows_per_rank,
        most_micro_batches=-(-rows_per_rank // at_once),
        rows_per_micro_batch=fixed,
        prompt=prompt,
        message=message,
        response=response,
        model=model,
        packed=packed,
        longest=longest,
        in_flight=min(prompts * samples, workers),
        engine_slots=count(config, f"{_ROLLOUT}.max_num_seqs"),
    )


def _devices(config: DictConfig) -> tuple[int, int, int]:
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


def _budgets(config: DictConfig) -> tuple[int, int, int, int]:
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


def _packed(config: DictConfig, message: int) -> int | None:
    """Tokens of one micro-batch, None where it holds a fixed number of rows."""
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


def _fixed_rows(config: DictConfig, rows_per_rank: int) -> int:
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


def count(config: DictConfig, key: str) -> int:
    """The value of a key that counts something; LaunchError if it is not a whole number of at least 1."""
    value = OmegaConf.select(config, key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise LaunchError(f"{key}={value} must be a whole number of at least 1.")
    return value
