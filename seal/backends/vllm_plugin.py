"""Entry point of `vllm.general_plugins`; vLLM runs it in the API process, the engine and every worker."""

import os


def register() -> None:
    """Prepare vLLM for weight updates: the run's own socket, their check, and on a CPU layers that notice them."""
    from vllm.platforms import current_platform
    from vllm.v1.worker.worker_base import WorkerBase

    from seal.backends.weight_check import METHOD, require_weights
    from seal.backends.weight_socket import VARIABLE

    if own := os.environ.get(VARIABLE):
        os.environ["VERL_RAY_JOB_ID"] = own
    setattr(WorkerBase, METHOD, require_weights)
    if current_platform.is_cpu():
        from vllm import _custom_ops

        _custom_ops._supports_onednn = False  # else each linear layer computes with a private copy of its weight
