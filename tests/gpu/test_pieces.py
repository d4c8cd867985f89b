"""What a launch on a GPU consists of, piece by piece: `pytest -s tests/gpu`; on a CPU the same with its parts.

Each test prints one line. What only a GPU has (CUDA IPC, sleep, kernels) is skipped without one.
"""

import gc
import json
import time
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2ForCausalLM

from seal.backends.cpu_rows import SHARE_PROMPTS, shared
from seal.backends.packed_attention import NAME as PACKED
from seal.backends.vllm_plugin import METHOD, WATCHED, Digest
from shelf.operate.fit import GIB, GPUS, ModelSizes, fit, gpu_named
from shelf.operate.step import step_plan
from tests.support.device import ATTENTION, CUDA, DEVICE, FUSED, WITHOUT_FLASH
from tests.support.engine_here import EngineHere, Sampled, beside, engine_of, sampled
from tests.support.packing import gradients, packed, rows_of
from tests.support.training import batch_of, scored, stepped, worker_of
from tests.support.weight_sender import Order, pattern

pytestmark = pytest.mark.slow
cuda_only = pytest.mark.skipif(not CUDA, reason="needs a GPU")

MODEL, ACTOR = "actor_rollout_ref.model", "actor_rollout_ref.actor"
FULL = f"++{ACTOR}.fsdp_config.mixed_precision={{param_dtype: fp32, reduce_dtype: fp32}}"
HALF = f"++{ACTOR}.fsdp_config.mixed_precision={{param_dtype: bf16, reduce_dtype: fp32}}"
PACKED_TOKENS = 16384 if CUDA else 1024
PROMPTS, SAMPLES, TOKENS = (16, 8, 128) if CUDA else (4, 3, 48)


ATTENTIONS = {
    "flash_attention_2": (f"{ATTENTION}=flash_attention_2", f"{MODEL}.use_fused_kernels=false"),
    "sdpa_fused": (f"{ATTENTION}=sdpa", *FUSED),
    PACKED: (f"{ATTENTION}={PACKED}", f"{MODEL}.use_fused_kernels=false"),
    f"{PACKED}_fused": WITHOUT_FLASH,
}


@pytest.fixture(autouse=True)
def own_forward(monkeypatch):
    """verl's fused kernels replace this method of the class; the next test gets it back."""
    monkeypatch.setattr(Qwen2ForCausalLM, "forward", Qwen2ForCausalLM.forward)


def synchronize() -> None:
    if CUDA:
        torch.cuda.synchronize()


@contextmanager
def measured():
    """Seconds, and the peak of GiB that torch allocated beyond what there was; 0 on a CPU."""
    found = {}
    if CUDA:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    synchronize()
    begun = time.perf_counter()
    yield found
    synchronize()
    found["s"] = time.perf_counter() - begun
    found["gib"] = (torch.cuda.max_memory_allocated() - before) / GIB if CUDA else 0.0


def rows(messages: list[Sampled]):
    """The messages as rows of an update, with advantages of both signs."""
    ids = [torch.tensor([*message.prompt, *message.ids]) for message in messages]
    masks = [torch.ones(len(message.ids), dtype=torch.long) for message in messages]
    return batch_of(ids, masks, advantages(len(ids)), [message.log_probs for message in messages])


def advantages(number: int) -> list[float]:
    return [1.0 if row % 2 else -0.5 for row in range(number)]


def drawn(groups: int, prompt: int, responses: int, length: int):
    """Rows of random tokens whose groups share a prompt."""
    draws = torch.Generator().manual_seed(0)
    ids = []
    for _ in range(groups):
        first = torch.randint(10, 500, (prompt,), generator=draws)
        ids += [torch.cat((first, torch.randint(10, 500, (length,), generator=draws))) for _ in range(responses)]
    return batch_of(ids, [torch.ones(length, dtype=torch.long)] * len(ids), advantages(len(ids)))


def state(worker) -> dict[str, torch.Tensor]:
    """What a worker sends to the engine."""
    tensors, _ = worker.engine.get_per_tensor_param()
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors}


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> tuple[float, float]:
    """The mean and the largest difference of two states; on a GPU sums have no fixed order."""
    differences = torch.cat([(one[name].float() - tensor.float()).abs().flatten() for name, tensor in other.items()])
    return differences.mean().item(), differences.max().item()


def clocked(method, seconds: list[float]):
    """The method; each call adds its seconds."""

    def call(*arguments, **options):
        with measured() as found:
            result = method(*arguments, **options)
        seconds.append(found["s"])
        return result

    return call


def distribution(differences: torch.Tensor) -> str:
    kept = differences.double()
    shares = ", ".join(f"{share} {kept.quantile(share).item():.1e}" for share in (0.5, 0.99))
    return f"mean {kept.mean().item():.2e}, quantiles {shares}, largest {kept.max().item():.1e}"


@pytest.fixture(scope="module")
def prompts(process):
    from tests.support.rollout_play import reference_prompts

    return reference_prompts(PROMPTS)


@pytest.fixture(scope="module")
def messages(engine, prompts):
    """Messages that the engine has sampled with the policy's weights."""
    return ask(engine, prompts)


def ask(engine, prompts, **others) -> list[Sampled]:
    from vllm import SamplingParams

    asked = [prompt for prompt in prompts for _ in range(SAMPLES)]
    params = [SamplingParams(max_tokens=TOKENS, logprobs=0, seed=number) for number in range(len(asked))]
    return sampled(engine, asked, params, **others)


def compared(worker, messages: list[Sampled]) -> torch.Tensor:
    """The differences between the engine's log-probs and the worker's, by sampled token."""
    found = scored(worker, rows(messages), calculate_entropy=False)["log_probs"]
    return (found.cpu() - torch.cat([message.log_probs for message in messages])).abs()


def test_the_device(say):
    """What the lines belong to."""
    names = ("torch", "verl", "vllm", "transformers", "flash_attn")
    found = " ".join(f"{name} {version(name)}" for name in names if find_spec(name))
    say(f"{torch.cuda.get_device_name(0) if CUDA else 'no GPU'}, {found}")


# ----------------------------------------------------------------------- worker


def test_an_update(recipe, policy, say):
    """Seconds and peak memory of an update that fills its micro-batches, beside the plan; shared prompts as well."""
    sizes = (4, 768, 4, 768) if CUDA else (2, 200, 4, 50)
    limit = f"{ACTOR}.ppo_max_token_len_per_gpu={PACKED_TOKENS}"
    config = recipe(limit, f"{ACTOR}.use_kl_loss=false", f"{ATTENTION}={PACKED}")
    plan, model = step_plan(config), ModelSizes.of(json.loads((policy / "config.json").read_text()))
    gpu = gpu_named(torch.cuda.get_device_name(0), 80 * GIB) if CUDA else GPUS["H100"]
    parts = fit(config, plan, model, gpu).update
    planned = sum(size for name, size in parts.items() if name not in ("sleeping engine", "contexts")) / GIB
    figures, norms, peaks = [], {}, []
    # Ours, as a device has it: verl's engine for CUDA shares no prompts.
    for share in (False,) if CUDA else (False, True):
        with measured() as peak:
            worker = worker_of(config.actor_rollout_ref, PACKED_TOKENS)
            norms[share] = stepped(worker, drawn(*sizes), **{SHARE_PROMPTS: share})["grad_norm"]
        with measured() as again:
            stepped(worker, drawn(*sizes), **{SHARE_PROMPTS: share})
        tokens = sizes[0] * sizes[2] * (sizes[1] + sizes[3])
        figures.append(f"{'shared prompts' if share else 'whole rows'}: {again['s']:.2f} s for {tokens:,} tokens")
        peaks.append(peak["gib"])
        del worker
    assert all(norm == pytest.approx(norms[False], rel=1e-4) and norm > 0 for norm in norms.values())
    say(*figures, f"peak {peaks[0]:.2f} GiB, planned {planned:.2f}")


def test_a_shared_prompt_has_the_gradients_of_whole_rows(policy, say):
    """The model alone, with attention that reads positions; the seconds and GiB of a pass forward and back."""
    groups = [(2000, [200] * 8)] if CUDA else [(300, [40] * 4)]
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32, attn_implementation=PACKED).to(DEVICE)
    ids, positions = packed(groups, 500)
    kept, places = shared(rows_of(groups))
    cases = {"whole rows": (ids, positions, torch.arange(ids.shape[1]))}
    cases["shared"] = ids[:, kept], positions[:, kept], places
    found, figures = {}, []
    for name, case in cases.items():
        gradients(model, *case)
        with measured() as spent:
            found[name] = gradients(model, *case)[1].cpu()
        figures.append(f"{name} {spent['s']:.3f} s, {spent['gib']:.2f} GiB")
    difference = ((found["shared"] - found["whole rows"]).norm() / found["whole rows"].norm()).item()
    say(*figures, f"gradients differ by {difference:.1e}")
    assert difference < 1e-3


@pytest.mark.parametrize("rank", [0, 8], ids=["full", "adapters"])
def test_fused_log_probs_of_an_untied_head(rank, recipe, policy, say, tmp_path):
    """FSDP2 gathers a head that the fused kernels read; log-probs and gradients are those of the plain head."""
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32, tie_word_embeddings=False)
    torch.manual_seed(0)
    model.lm_head.weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    model.lm_head.weight.data += 0.01 * torch.randn_like(model.lm_head.weight)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(policy).save_pretrained(tmp_path)
    found = {}
    for name, fused in {"plain": (f"{MODEL}.use_fused_kernels=false",), "fused": FUSED}.items():
        own = f"{MODEL}.path={tmp_path}", f"{ATTENTION}={PACKED}", FULL, f"{ACTOR}.use_kl_loss=false", *fused
        torch.manual_seed(0)  # the adapters' own weights
        own += (f"{MODEL}.lora_rank={rank}",)
        worker = worker_of(recipe(*own).actor_rollout_ref, 200)
        before = scored(worker, drawn(2, 60, 4, 20), calculate_entropy=False)["log_probs"].cpu()
        found[name] = before, stepped(worker, drawn(2, 60, 4, 20))["grad_norm"]
    (plain, norm), (fused, other) = found["plain"], found["fused"]
    say(f"log-probs differ by {(plain - fused).abs().max():.1e} at most, gradient norms {norm:.4f} and {other:.4f}")
    assert (plain - fused).abs().max() < 1e-4 and other == pytest.approx(norm, rel=1e-3) and norm > 0


def test_offload_and_fused_adam(recipe, say, monkeypatch):
    """exp/SEAL_1gpu.yaml's settings leave the weights of none of them."""
    offload = (
        f"{ACTOR}.fsdp_config.offload_policy=true",
        f"{ACTOR}.fsdp_config.use_no_sync_for_gradient_accumulation=true",
        f"{ACTOR}.optim.override_optimizer_config={{fused: true}}",
    )
    sizes, found, figures = (4, 768, 4, 768) if CUDA else (2, 60, 4, 20), [], []
    for overrides in ((), offload):
        config = recipe(*WITHOUT_FLASH, FULL, f"{ACTOR}.use_kl_loss=false", *overrides)
        worker = worker_of(config.actor_rollout_ref, PACKED_TOKENS)
        stepped(worker, drawn(*sizes))
        found.append(state(worker))
        optimizer, adam = worker.engine.optimizer, []
        monkeypatch.setattr(optimizer, "step", clocked(optimizer.step, adam))
        with measured() as spent:
            stepped(worker, drawn(*sizes))
        figures.append(f"{'offloaded' if overrides else 'plain'} {spent['s']:.2f} s, Adam {adam[-1]:.3f} s of it")
        del worker, optimizer
    mean, largest = apart(*found)
    say(*figures, f"weights differ by {mean:.1e}, {largest:.1e} at most")
    assert mean < 1e-6 if CUDA else largest < 1e-5


def test_a_checkpoint_is_written_and_read(recipe, say, tmp_path):
    config, sizes = recipe(*WITHOUT_FLASH, FULL, f"{ACTOR}.use_kl_loss=false").actor_rollout_ref, (2, 60, 4, 20)
    first = worker_of(config, PACKED_TOKENS)
    stepped(first, drawn(*sizes))
    with measured() as written:
        first.save_checkpoint(str(tmp_path), global_step=1)
    stepped(first, drawn(*sizes))
    second = worker_of(config, PACKED_TOKENS)
    with measured() as read:
        second.load_checkpoint(str(tmp_path))
    stepped(second, drawn(*sizes))
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) / GIB
    mean, largest = apart(state(first), state(second))
    times = f"written in {written['s']:.1f} s, read in {read['s']:.1f} s"
    say(f"{size:.2f} GiB {times}", f"the next update differs by {mean:.1e}, {largest:.1e} at most")
    assert mean < 1e-6 if CUDA else largest == 0


# ---------------------------------------------------------------------- weights


def test_a_tensor_of_any_size_arrives_whole(process, sender, say, tmp_path):
    """verl's two ends of a transfer: in a buffer, and alone if a tensor is larger (CUDA IPC)."""
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver

    device = torch.device(f"{DEVICE}:0") if CUDA else torch.device("cpu")
    sizes = {"in its bucket": 1 << 20, "larger than it": 4 << 20, "2.2 GB": 550_000_000} if CUDA else {"in it": 1 << 20}
    seconds = {}
    for name, elements in sizes.items():
        expected = pattern(elements, str(device))

        arrived = []

        def take(tensors, last, expected=expected, arrived=arrived):
            arrived += [torch.equal(tensor, expected) for _, tensor in tensors]

        receiver = BucketedWeightReceiver(handle := f"ipc://{tmp_path}/socket", device, use_shm=not CUDA)
        with measured() as found:
            sender.send(Order(handle, 8, not CUDA, elements=elements), lambda r=receiver, t=take: r.receive_weights(t))
        assert arrived == [True]
        seconds[name] = found["s"]
    say(", ".join(f"{name} {spent:.2f} s" for name, spent in seconds.items()))


# ----------------------------------------------------------------------- engine


@pytest.mark.parametrize("precision", [FULL, HALF], ids=["fp32", "bf16"])
@pytest.mark.parametrize("kernels", ATTENTIONS)
def test_log_probs(kernels, precision, engine, recipe, messages, say):
    """The actor against the engine on the engine's own tokens: what `logprob_mean_tolerance` should be set from."""
    if kernels == "flash_attention_2" and (not CUDA or precision == FULL or find_spec("flash_attn") is None):
        pytest.skip("needs a GPU, bf16 and flash-attn")
    config = recipe(*ATTENTIONS[kernels], precision)
    with measured() as built:
        worker = worker_of(config.actor_rollout_ref, PACKED_TOKENS)
    compared(worker, messages[:2])
    with measured() as found:
        differences = compared(worker, messages)
    exact = not CUDA and precision == FULL
    assert differences.mean() < (1e-5 if exact else 0.1)
    per_s = sum(len(m.prompt) + len(m.ids) for m in messages) / found["s"]
    built_s = f"worker {built['s']:.1f} s"
    say(f"{distribution(differences)}, {len(differences)} tokens", f"{per_s:,.0f} tokens/s", built_s)


def test_a_stale_weight_is_noticed(engine, recipe, policy, prompts, messages, sync, say, tmp_path):
    """After an update the check refuses the engine until it has the weights; log-probs may be too coarse for it."""
    worker = worker_of(recipe(f"{ACTOR}.use_kl_loss=false").actor_rollout_ref, PACKED_TOKENS)
    fresh = compared(worker, messages)
    stepped(worker, rows(messages))
    sent = state(worker)
    save_file(sent, tmp_path / "model.safetensors")
    dtype = engine.llm_engine.model_config.dtype
    digests = {name: tuple(Digest.of(t.to(dtype))) for name, t in sent.items() if name.endswith(WATCHED)}
    with pytest.raises(RuntimeError, match="is not the trainer's"):
        engine.collective_rpc(METHOD, args=(digests,))
    stale = compared(worker, messages)
    try:
        with measured() as found:
            sync(engine, tmp_path / "model.safetensors")
        engine.collective_rpc(METHOD, args=(digests,))
        after = compared(worker, ask(engine, prompts))
    finally:
        sync(engine, policy / "model.safetensors")
    assert after.mean() < 2 * fresh.mean() + (1e-3 if CUDA else 1e-5)
    largest = max(tensor.nbytes for tensor in sent.values()) / 1e6
    means = f"fresh {fresh.mean():.1e}, stale {stale.mean():.1e}, sent {after.mean():.1e}"
    say(f"sync {found['s']:.2f} s, largest tensor {largest:.1f} MB", f"log-probs differ: {means}")


@cuda_only
def test_the_engine_sleeps_and_wakes(engine, policy, prompts, messages, sync, say):
    """verl's order: sleep at level 2, wake the weights, send them, wake the cache."""

    def used() -> float:
        free, whole = torch.cuda.mem_get_info()
        return (whole - free) / GIB

    memory = [used()]
    engine.sleep(level=2)
    memory.append(used())
    engine.wake_up(tags=["weights"])
    sync(engine, policy / "model.safetensors")
    engine.wake_up(tags=["kv_cache"])
    memory.append(used())
    again = ask(engine, prompts)
    same = np.mean([one.ids == other.ids for one, other in zip(again, messages, strict=True)])
    used_by = f"{memory[0]:.2f} GiB in use awake, {memory[1]:.2f} asleep, {memory[2]:.2f} awake"
    say(used_by, f"{same:.0%} of answers the same")
    assert memory[1] < memory[0] - 1.5 and same > 0.5


def test_rollouts_and_vllm_alone(engine, say):
    """Tokens per second of the agent loop over the service, and of the engine on the same prompts and lengths."""
    from vllm import SamplingParams

    from tests.support.rollout_play import roll_out, running_service

    here = EngineHere(engine)
    own = "seal.rollout.max_message_tokens=128", "data.max_response_length=768", "data.max_prompt_length=768"
    limit = "actor_rollout_ref.rollout.max_model_len=1536"
    with running_service() as service, measured() as played:
        found = roll_out([service.url], here, *own, limit, trajectories=64 if CUDA else 6)
    assert all(record.infra is None for _, record in found)
    engine.reset_prefix_cache()
    prompts = [prompt for prompt, _ in here.asked]
    params = [SamplingParams(max_tokens=n, ignore_eos=True, seed=place) for place, (_, n) in enumerate(here.asked)]
    with measured() as alone:
        answers = sampled(engine, prompts, params)
    tokens = sum(len(answer.ids) for answer in answers)
    assert tokens == sum(record.tokens for _, record in found)
    rates = [tokens / each["s"] for each in (played, alone)]
    say(f"{rates[0]:.0f} tokens/s in {len(found)} rollouts of {len(prompts)} messages, vLLM alone {rates[1]:.0f}")


# ---------------------------------------------------------------- other engines


def test_adapters(recipe, prompts, sync, say, tmp_path):
    """Adapters after an update, sent to an engine that has loaded the base by itself."""
    from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, VLLM_LORA_NAME, VLLM_LORA_PATH
    from vllm.lora.request import LoRARequest

    lora = f"{MODEL}.lora_rank=32", f"{MODEL}.lora_alpha=32", f"{ACTOR}.optim.lr=0.01", f"{ACTOR}.use_kl_loss=false"
    config = recipe(*lora, *WITHOUT_FLASH).actor_rollout_ref
    adapted = engine_of(config, enable_lora=True, max_loras=1, max_lora_rank=32, **beside())
    plain = ask(adapted, prompts)
    worker = worker_of(config, PACKED_TOKENS)
    stepped(worker, rows(plain))
    tensors, adapters = worker.engine.get_per_tensor_param(base_sync_done=True)
    kept = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors}
    save_file(kept, tmp_path / "adapters.safetensors")
    sync(adapted, tmp_path / "adapters.safetensors", peft_config=adapters, base_sync_done=True)
    request = LoRARequest(lora_name=VLLM_LORA_NAME, lora_int_id=VLLM_LORA_INT_ID, lora_path=VLLM_LORA_PATH)
    with measured() as spent:
        answers = ask(adapted, prompts, lora_request=request)
    with_them, without = compared(worker, answers), compared(worker, plain)
    rate = sum(len(answer.ids) for answer in answers) / spent["s"]
    say(
        f"{len(kept)} tensors",
        f"with them {distribution(with_them)}",
        f"without {without.mean():.1e}",
        f"{rate:.0f} tokens/s",
    )
    assert with_them.mean() < 0.1 and with_them.mean() < without.mean() / 3


@cuda_only
def test_log_probs_of_an_engine_in_fp32(recipe, prompts, say):
    config = recipe(FULL, "actor_rollout_ref.rollout.dtype=float32").actor_rollout_ref
    exact = engine_of(config, **beside())
    differences = compared(worker_of(config, PACKED_TOKENS), ask(exact, prompts))
    say(f"{distribution(differences)}, {len(differences)} tokens")
    assert differences.mean() < 1e-3
