"""verl's FSDP2 language-model engine, registered for device `cpu`."""

from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl

from seal.backends import packed_attention
from seal.backends.patches import gloo_process_group, without_cpu_offload

gloo_process_group()
packed_attention.register()


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")
class CPUFSDP2EngineWithLMHead(transformer_impl.FSDPEngineWithLMHead):
    """verl's engine, except that a sharded module is not offloaded: there is no device to offload from."""

    def _build_fsdp_module(self, module):
        with without_cpu_offload(transformer_impl):
            return super()._build_fsdp_module(module)
