"""verl's side of the weight transfer to vLLM; imported by the workers that send."""

import os

import ray
from verl.workers.rollout.vllm_rollout import ServerAdapter

from seal.backends.weight_socket import VARIABLE


class WeightSender(ServerAdapter):
    """Sends over the socket of this run: vLLM's worker expects VARIABLE in place of the Ray job's number."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        if own := os.environ.get(VARIABLE):
            self.zmq_handle = self.zmq_handle.replace(ray.get_runtime_context().get_job_id(), own)
