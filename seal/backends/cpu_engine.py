"""verl's FSDP2 language-model engine, registered for device `cpu`."""

from collections.abc import Callable

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl

from seal.backends import packed_attention
from seal.backends.idle_rows import SKIP_IDLE_ROWS, busy_rows
from seal.backends.patches import gloo_process_group, without_cpu_offload

gloo_process_group()
packed_attention.register()


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")
class CPUFSDP2EngineWithLMHead(transformer_impl.FSDPEngineWithLMHead):
    """verl's engine, with two differences.

    A sharded module is not offloaded: there is no device to offload from. An update passes over the rows whose
    gradient is zero, where the trainer says which loss it has (`seal.backends.idle_rows`).
    """

    def _build_fsdp_module(self, module):
        with without_cpu_offload(transformer_impl):
            return super()._build_fsdp_module(module)

    def forward_backward_batch(self, data: TensorDict, loss_function: Callable, forward_only=False):
        if forward_only or not tu.get_non_tensor_data(data, key=SKIP_IDLE_ROWS, default=False):
            return super().forward_backward_batch(data, loss_function, forward_only)
        tokens = data["loss_mask"].sum()
        torch.distributed.all_reduce(tokens, group=self.get_data_parallel_group())

        def over_all_rows(*, data: TensorDict, **rest):
            tu.assign_non_tensor(data, batch_num_tokens=tokens.item())
            return loss_function(data=data, **rest)

        return super().forward_backward_batch(
            tu.index_select_tensor_dict(data, busy_rows(data["advantages"])), over_all_rows
        )
