"""verl's side of the weight transfer to vLLM; imported by the workers that send."""

import os
from collections.abc import AsyncIterator
from typing import Any

import ray
import torch
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.rollout.utils import ensure_async_iterator
from verl.workers.rollout.vllm_rollout import ServerAdapter

from seal.backends.vllm_plugin import METHOD, VARIABLE, WATCHED, Digest


class WeightSender(ServerAdapter):
    """Sends over the socket of this run: vLLM's worker expects VARIABLE in place of the Ray job's number.

    After a sync it has the engine compare what it holds with what was sent; adapters are not compared.
    """

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        if own := os.environ.get(VARIABLE):
            self.zmq_handle = self.zmq_handle.replace(ray.get_runtime_context().get_job_id(), own)

    async def update_weights(self, weights: Any, *args, **options) -> None:
        sent: dict[str, Digest] = {}
        await super().update_weights(self._watched(weights, sent), *args, **options)
        if sent:
            await self._execute_method(METHOD, args=(sent,))

    async def _watched(self, weights: Any, sent: dict[str, Digest]) -> AsyncIterator[tuple[str, torch.Tensor]]:
        async for name, weight in ensure_async_iterator(weights):
            if isinstance(name, str) and name.endswith(WATCHED):
                sent[name] = Digest.of(weight.to(PrecisionType.to_dtype(self.config.dtype)))
            yield name, weight
