"""Recipes on 1, 4 and 8 devices: they compose and divide, and verl and vLLM still read what CUDA recipes set."""

import asyncio
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seal.system.paths import HOME
from tests.support.recipes import composed

EXP = HOME / "exp"
RECIPES = ["SEAL", "SEAL_1gpu", "SEAL_async", "SEAL_lora", "SEAL_released", "gpu_smoke", "pretrained_1gpu"]
RECIPES += ["environments/tau2_telecom", "environments/tau2_retail"]
RECIPES += [f"backbones/{path.stem}" for path in sorted((EXP / "backbones").glob("*.yaml"))]
PARTS = ["base/seal", "base/async", "base/pretrained", "backend/cuda", *RECIPES]
OURS = ("seal.", "env_service.", "defaults", "ray_kwargs.", "actor_rollout_ref.model.override_config.")
"""Blocks that verl does not read, or hands on as they are."""


@cache
def verls_names() -> frozenset[str]:
    """Every word in Python of verl and of its data queue, without the definitions of configuration classes."""
    roots = [Path(find_spec(package).origin).parent for package in ("verl", "transfer_queue")]
    files = (path for root in roots for path in root.rglob("*.py") if path.parent.name != "config")
    return frozenset(word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))


def keys(tree, prefix=""):
    for name, value in tree.items():
        yield from keys(value, f"{prefix}{name}.") if isinstance(value, dict) and value else [f"{prefix}{name}"]


@pytest.mark.parametrize("part", PARTS)
def test_verl_reads_every_key_that_a_recipe_sets(part):
    tree = OmegaConf.to_container(OmegaConf.load(EXP / f"{part}.yaml"), resolve=False)
    for key in keys(tree):
        name = key.rsplit(".", 1)[-1]
        if not key.startswith(OURS):
            assert name in verls_names(), f"exp/{part}.yaml sets {key}, which nothing in verl reads."


class Parsed(Exception):
    """The arguments, once vLLM's parser has taken them."""


@pytest.mark.parametrize("recipe", ["SEAL", "SEAL_1gpu", "SEAL_lora"])
def test_vllms_parser_takes_what_verl_makes_of_a_recipe(recipe, monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setenv("SAGEMAKER_CONTAINER_LOG_LEVEL", "WARNING")  # else the next import hides warnings in all tests
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config import HFModelConfig
    from verl.workers.rollout.vllm_rollout import vllm_async_server as module

    class Parser(module.FlexibleArgumentParser):
        def parse_args(self, args=None, namespace=None):
            raise Parsed(super().parse_args(args, namespace))

    monkeypatch.setattr(module, "FlexibleArgumentParser", Parser)
    config = composed(EXP / f"{recipe}.yaml").actor_rollout_ref
    config.model.path = str(HOME / "data" / "quickstart_policy")
    server = object.__new__(module.vLLMHttpServer)
    server.config = omega_conf_to_dataclass(config.rollout)
    server.model_config = omega_conf_to_dataclass(config.model, HFModelConfig)
    server.config.max_model_len = config.rollout.max_model_len
    vars(server).update(replica_rank=0, node_rank=0, nnodes=1, gpus_per_node=4, workers=[], _disaggregation_role="null")
    server._should_profile = lambda: False
    with pytest.raises(Parsed) as parsed:
        asyncio.run(server.launch_server())
    (arguments,) = parsed.value.args
    assert arguments.gpu_memory_utilization == config.rollout.gpu_memory_utilization
    assert arguments.logprobs_mode == "processed_logprobs" and arguments.max_model_len == 16384
    assert arguments.enable_sleep_mode and arguments.enable_prefix_caching
    assert bool(arguments.enable_lora) == (recipe == "SEAL_lora")
