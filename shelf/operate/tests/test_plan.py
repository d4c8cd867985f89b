"""`seal plan`: a step, its tasks, and what it takes of a GPU."""

from dataclasses import replace
from functools import cache

import pytest
from typer.testing import CliRunner

from seal.launch.recipe import read_recipe
from seal.method.interface.cues import catalogue
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from shelf.operate.cli.plan import app
from shelf.operate.fit import GB, GPUS, MESSAGE_TOKENS, TOKEN_S, ModelSizes, gpu_named, require_fit, seconds, work
from shelf.operate.plan import RunPlan, model_of
from shelf.operate.step import step_plan

EXP = HOME / "exp"


@cache
def planned(recipe, *overrides):
    """A few tasks stand for the recipe's where lengths do not matter."""
    few = ("seal.data.train.limit=3",) if overrides else ()
    return RunPlan.of(read_recipe(EXP / f"{recipe}.yaml", [*few, *overrides]))


def fitted(plan, gpu="H100"):
    model = model_of(plan.recipe)
    require_fit(plan.on(GPUS[gpu], model), plan.step, model, GPUS[gpu])
    return plan.on(GPUS[gpu], model)


def test_the_main_run_is_the_one_that_was_computed_by_hand():
    """By hand: parameters 7.6 GB, Adam 15.2, contexts 2, engine 47.8 GiB; the update 45 GB; 9.9 micro-batches."""
    plan = planned("SEAL")
    fit, model = fitted(plan), model_of(plan.recipe)
    assert sum(fit.rollout.values()) == pytest.approx(7.6 * GB + 15.2 * GB + 2 * GB + 47.8 * 2**30, rel=0.03)
    assert sum(fit.update.values()) == pytest.approx(47 * GB, rel=0.05)
    assert model.kv_bytes == 57_344 and fit.kv / model.kv_bytes == pytest.approx(500_000, rel=0.2)
    assert plan.work.micro_batches == pytest.approx(9.9, rel=0.1)
    assert plan.work.prompt == pytest.approx(6_026, rel=0.02)
    stages = seconds(plan.recipe.config, plan.step, model, GPUS["H100"], plan.work)
    assert stages["update"] == pytest.approx(88, rel=0.15) and 165 < sum(stages.values()) < 200


def test_a_step_of_a_small_model_takes_about_what_it_took_on_an_h200():
    """benchmarks/speed.md, stage policy."""
    sizes = ("trainer.n_gpus_per_node=1", "data.train_batch_size=8", "actor_rollout_ref.rollout.n=4")
    recipe = read_recipe(EXP / "SEAL.yaml", [*sizes, "actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct"])
    step = step_plan(recipe.config)
    stages = seconds(recipe.config, step, model_of(recipe), GPUS["H200"], work(step, planned("SEAL").tasks))
    assert sum(stages.values()) == pytest.approx(41.5, rel=0.3)


def test_an_engine_on_two_gpus_has_the_room_of_both_beside_its_weights():
    def room(tensor):
        plan = planned("SEAL", f"actor_rollout_ref.rollout.tensor_model_parallel_size={tensor}")
        model = model_of(plan.recipe)
        return [plan.on(GPUS["H100"], replace(model, kv_heads=heads)).kv for heads in (model.kv_heads, 1)]

    (one, _), (two, copied) = room(1), room(2)
    assert two > 2 * one and copied == pytest.approx(two / 2)


def test_one_gpu_keeps_gradients_and_leaves_the_rest_in_host_memory():
    fit = fitted(planned("SEAL_1gpu", "seal.seed=0"))
    assert fit.update["gradients"] == pytest.approx(30.5 * GB, rel=0.01) and "optimizer" not in fit.update
    assert fit.host == pytest.approx(206 * GB, rel=0.01)
    assert fit.host < planned("SEAL_1gpu", "seal.seed=0").recipe.settings.min_memory_gb * GB


@pytest.mark.parametrize(
    ("recipe", "override", "gpu", "named"),
    [
        ("SEAL", "trainer.n_gpus_per_node=4", "A100-40", "The rollout needs"),
        ("SEAL", "actor_rollout_ref.rollout.gpu_memory_utilization=0.1", "A100-40", "The update needs"),
        ("SEAL", "actor_rollout_ref.rollout.gpu_memory_utilization=0.2", "H100", "keys and values"),
        (
            "SEAL",
            "trainer.n_gpus_per_node=1",
            "H100",
            r"optimizer.* alone need .*offload_policy=true.*SEAL_1gpu.*lora_rank",
        ),
        ("SEAL", "seal.seed=1", "4090", r"optimizer.* alone need .*offload_policy=true.*SEAL_1gpu.*lora_rank"),
        ("SEAL_1gpu", "seal.seed=1", "4090", r"^Gradients, contexts alone need [^:]*: train an adapter"),
    ],
)
def test_what_does_not_fit_is_one_sentence(recipe, override, gpu, named):
    with pytest.raises(LaunchError, match=named) as error:
        fitted(planned(recipe, override), gpu)
    assert "\n" not in str(error.value)


def test_a_plan_says_what_the_doctor_looks_for_of_disk_and_memory():
    lines = dict(planned("SEAL").lines())
    assert lines["disk"].startswith("350 GiB") and lines["memory"].startswith("64 GB")


def test_a_user_whom_a_model_plays_has_its_share():
    """Of 64 rollouts with 41 requests at most; a model of 7.6 billion parameters says a token in 8 ms or more."""
    pytest.importorskip("tau2")
    plan = planned("environments/tau2_retail", "seal.seed=0")
    assert dict(plan.lines())["requests to the user"].startswith("128 to 2,624 in a step")
    stages = dict(plan.gpu_lines(GPUS["H100"], model_of(plan.recipe), None))["seconds of a step"]
    waited = int(stages.split("user on one GPU ")[1].split(",")[0])
    assert 41 * MESSAGE_TOKENS * TOKEN_S <= waited < 3 * 41 * MESSAGE_TOKENS * TOKEN_S
    assert all("user" not in what for what, _ in planned("SEAL").lines())


def test_a_validation_plays_the_withdrawal_too_if_there_is_an_interface():
    def validation(*overrides):
        plan = planned("SEAL", *overrides)
        return dict(plan.gpu_lines(GPUS["H100"], model_of(plan.recipe), None))["validations, saves"].split(",")[0]

    asked, off = "seal.data.withdrawal={split: train}", "seal.interface.enabled=false"
    assert validation("seal.seed=0") != validation(asked)
    assert validation(off) == validation(asked, off)


def test_a_validation_alone_takes_the_time_of_one_validation():
    plan = planned("SEAL", "trainer.val_only=true")
    lines = dict(plan.gpu_lines(GPUS["H100"], model_of(plan.recipe), None))
    validation, saves = lines["validations, saves"].split(", ")
    assert lines["steps"] == "0" and validation.startswith("1 of ") and saves.startswith("0 of ")
    assert float(lines["hours"].split(",")[0]) == pytest.approx(float(validation.split()[2]) / 3600, abs=0.05)


def test_cues_that_training_never_shows_take_no_room():
    """Left out by name, or of a kind that the closed loop would turn on if it were not switched off."""

    def longest(*overrides):
        return max(task.prompt for task in planned("SEAL", "seal.seed=0", *overrides).tasks)

    plain, none = longest("seal.interface.enabled=false"), f"seal.interface.evolve.left_out=[{','.join(catalogue())}]"
    assert longest(none) == plain
    assert plain < longest("seal.interface.evolve.left_out=[schema_types]") < longest()
    assert plain < longest("seal.closed_loop=false") < longest()


def test_a_prompt_that_cannot_be_read_is_refused():
    with pytest.raises(LaunchError, match=r"data\.max_prompt_length is 4096"):
        planned("SEAL", "data.max_prompt_length=4096")


@pytest.mark.parametrize("recipe", ["quickstart", "test_bed", "pretrained_cpu"])
def test_every_prompt_has_room_for_all_cues(recipe):
    plan = planned(recipe)
    assert max(task.prompt for task in plan.tasks) <= plan.step.prompt


@pytest.mark.parametrize("recipe", ["SEAL_lora", "backbones/qwen2_5_3b", "backbones/toolace_2_llama_3_1_8b"])
def test_the_recipes_fit_the_gpus_that_they_are_made_for(recipe):
    plan = planned(recipe, "trainer.n_gpus_per_node=4")
    assert fitted(plan).host < plan.recipe.settings.min_memory_gb * GB


def test_sizes_of_a_small_model_are_those_of_its_weights():
    recipe = read_recipe(EXP / "quickstart.yaml", [])
    from safetensors import safe_open

    with safe_open(HOME / "data" / "quickstart_policy" / "model.safetensors", "pt") as weights:
        held = sum(weights.get_tensor(name).numel() for name in weights.keys())  # noqa: SIM118
    assert model_of(recipe).parameters == pytest.approx(held, rel=0.01)
    assert ModelSizes.of({"text_config": {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "vocab_size": 10}}).kv_bytes == 2 * 8 * 4  # fmt: skip


def test_a_gpu_is_known_by_part_of_its_name_or_by_its_memory():
    assert gpu_named("NVIDIA H100 80GB HBM3", 80 * GB) == GPUS["H100"]._replace(memory=80 * GB)
    assert gpu_named("another", 10 * GB).memory == 10 * GB
    with pytest.raises(ValueError, match="choose from"):
        gpu_named("another")


def test_the_command_prints_the_plan_and_its_code_says_whether_it_fits():
    few = ["exp/SEAL.yaml", "seal.data.train.limit=2", "data.train_batch_size=8", "--price", "2.5", "--gpu"]
    fits, not_here = (CliRunner().invoke(app, [*few, gpu]) for gpu in ("H100", "4090"))
    assert fits.exit_code == exits.FINISHED and "GPU hours" in fits.output and "per GPU hour" in fits.output
    assert not_here.exit_code == exits.REFUSED and "offload_policy=true" in not_here.output
    own = ["exp/quickstart.yaml", "actor_rollout_ref.rollout.n=4", "seal.data.train.limit=4"]
    done = CliRunner().invoke(app, own)
    said = [" ".join(line.split()) for line in done.output.splitlines()]
    expected = RunPlan.of(read_recipe(HOME / own[0], own[1:])).lines()
    assert done.exit_code == exits.FINISHED and all(f"{what} {amount}" in said for what, amount in expected)
    assert "cut there by actor_rollout_ref.actor.ppo_max_token_len_per_gpu" in done.output


@pytest.mark.parametrize("option", [("--gpu", "H100"), ("--price", "2")])
def test_a_gpu_for_a_recipe_of_cpus_is_refused(option):
    done = CliRunner().invoke(app, ["exp/quickstart.yaml", *option])
    assert done.exit_code == exits.USAGE and "trainer.device=cuda" in done.output


def test_a_recipe_that_is_not_there_is_refused():
    done = CliRunner().invoke(app, ["exp/none.yaml"])
    assert done.exit_code == exits.REFUSED and "There is no recipe exp/none.yaml" in done.output


def test_a_model_with_gpt2s_names_is_counted_and_what_its_file_lacks_is_named():
    config = {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
    sizes = ModelSizes.of(config)
    assert (sizes.layers, sizes.hidden, sizes.intermediate) == (12, 768, 4 * 768)
    with pytest.raises(ValueError, match="lacks num_attention_heads, vocab_size"):
        ModelSizes.of({"text_config": {"hidden_size": 8, "num_hidden_layers": 2}})


def test_all_experts_of_a_mixture_take_memory():
    """The sizes of Qwen3-30B-A3B, which has 30.5 billion parameters by its card."""
    config = {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32}
    config |= {"num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": False}
    config |= {"num_experts": 128, "moe_intermediate_size": 768}
    assert ModelSizes.of(config).parameters == pytest.approx(30.5e9, rel=0.01)
