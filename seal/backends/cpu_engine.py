"""verl's FSDP2 language-model engine, registered for device `cpu`."""

from collections.abc import Callable
from functools import partial

import torch
from tensordict import TensorDict
from torch.distributed import ProcessGroup
from verl.utils import tensordict_utils as tu
from verl.utils.torch_functional import logprobs_from_logits
from verl.workers import engine_workers
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl

from seal.backends.cpu_rows import (
    SHARE_PROMPTS,
    SKIP_IDLE_ROWS,
    before_sampled,
    busy_rows,
    filled_up,
    micro_batches,
    rows_of,
    shared,
)


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")
class CPUFSDP2EngineWithLMHead(transformer_impl.FSDPEngineWithLMHead):
    """verl's engine, with three differences.

    An update skips the rows whose gradient is zero, if the trainer says which loss it has
    (`seal.backends.cpu_rows`). Logits are computed only where a sampled token follows, one in seven of the
    quickstart's tokens: verl takes log-probs one token at a time. The log-prob and entropy of other tokens are 0;
    masks leave them out of losses and comparisons. A prompt that rows share is computed once, if the trainer asks
    for it (`seal.backends.cpu_rows`).
    """

    def forward_backward_batch(self, data: TensorDict, loss_function: Callable, forward_only=False):
        if forward_only or not tu.get_non_tensor_data(data, key=SKIP_IDLE_ROWS, default=False):
            return super().forward_backward_batch(data, loss_function, forward_only)
        return super().forward_backward_batch(*self._busy(data, loss_function))

    def _busy(self, data: TensorDict, loss_function: Callable) -> tuple[TensorDict, Callable]:
        """The rows with an advantage, and the loss function that counts the tokens of all rows."""
        ranks = self.get_data_parallel_group()
        tokens, busy = data["loss_mask"].sum(), busy_rows(data["advantages"])
        most = torch.tensor(len(busy))
        torch.distributed.all_reduce(tokens, group=ranks)
        torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX, group=ranks)

        def over_all_rows(*, data: TensorDict, **rest):
            tu.assign_non_tensor(data, batch_num_tokens=tokens.item())
            return loss_function(data=data, **rest)

        # All ranks keep the same number of rows: verl gives them the same number of micro-batches.
        kept = filled_up(busy, rows=len(data), number=int(most))
        return tu.index_select_tensor_dict(data, kept), over_all_rows

    def prepare_model_inputs(self, micro_batch: TensorDict):
        inputs, output_args = super().prepare_model_inputs(micro_batch)
        if _wants_sampled_alone(micro_batch):
            chosen = before_sampled(micro_batch["input_ids"].offsets(), micro_batch["response_mask"])
            inputs["logits_to_keep"] = output_args[_CHOSEN] = chosen
            if _shares_prompts(micro_batch):
                kept, places = shared(rows_of(micro_batch))
                inputs |= {name: inputs[name][:, kept] for name in ("input_ids", "position_ids")}
                inputs["logits_to_keep"] = places[chosen]
        return inputs, output_args

    def prepare_model_outputs(self, output, output_args, micro_batch: TensorDict, logits_processor_func):
        if _CHOSEN not in output_args:
            return super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
        chosen, offsets = output_args[_CHOSEN], micro_batch["input_ids"].offsets()
        logits = output.logits.squeeze(0)
        if not output_args["temperature_is_one"]:
            logits = logits / output_args["temperature_rmpad"][chosen].unsqueeze(-1).to(logits.dtype)
        found = logprobs_from_logits(logits, output_args["input_ids_rmpad_rolled"][chosen])
        values = {"log_probs": found}
        if tu.get_non_tensor_data(micro_batch, key="calculate_entropy", default=False):
            values["entropy"] = self.compute_entropy_from_logits(logits)
        zeros = torch.zeros(int(offsets[-1]), dtype=found.dtype)
        every = {name: zeros.index_copy(0, chosen, value) for name, value in values.items()}
        return {name: torch.nested.nested_tensor_from_jagged(value, offsets) for name, value in every.items()}


_CHOSEN = "seal_chosen_tokens"
"""The key of verl's output_args that holds the places of packed tokens whose logits are computed."""


def _shares_prompts(data: TensorDict) -> bool:
    """Return whether micro-batches of tokens contain a shared prompt once."""
    return tu.get_non_tensor_data(data, SHARE_PROMPTS, False) and tu.get_non_tensor_data(data, "use_dynamic_bsz", True)


def _micro_batches(
    data: TensorDict, dp_group: ProcessGroup, by_length: Callable = transformer_impl.prepare_micro_batches, **rest
) -> tuple[list[TensorDict], list[list[int]]]:
    """verl's `by_length`; rows that share prompts are split by prompt, into equally many parts on every rank."""
    if not _shares_prompts(data):
        return by_length(data, dp_group=dp_group, **rest)
    rows, limit = rows_of(data), data["max_token_len_per_gpu"]
    number = torch.tensor(len(micro_batches(rows, limit)))
    torch.distributed.all_reduce(number, op=torch.distributed.ReduceOp.MAX, group=dp_group)
    parts = micro_batches(rows, limit, int(number))
    return [tu.index_select_tensor_dict(data, part) for part in parts], parts


def _wants_sampled_alone(micro_batch: TensorDict) -> bool:
    """Return whether packed rows need only log-probs and entropy at the sampled tokens."""
    asked = ("calculate_sum_pi_squared", "distillation_use_topk", "use_fused_kernels")
    others = any(tu.get_non_tensor_data(micro_batch, key=key, default=False) for key in asked)
    packed = tu.get_non_tensor_data(micro_batch, key="use_remove_padding", default=True)
    return packed and not others and "response_mask" in micro_batch


# The names of verl's modules that mean something else in a process on a CPU. torch refuses verl's own backend there,
# `cpu:gloo,cpu:gloo`, as a duplicate device; there is no device to offload a sharded module from.
engine_workers.initialize_global_process_group_ray = partial(
    engine_workers.initialize_global_process_group_ray, backend="cpu:gloo"
)
transformer_impl.CPUOffloadPolicy = lambda **_: None
transformer_impl.prepare_micro_batches = _micro_batches
