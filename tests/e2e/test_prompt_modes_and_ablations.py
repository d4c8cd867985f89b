"""Every prompt mode and every ablation trains for two steps with the small policy.

One run covers a mode and an ablation. Prompts that show the tools' documents are
some thousand tokens long, and without kernels attention grows with their square,
so these runs are as small as a group-relative advantage allows.
"""

import pytest
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer

from env_service.environments.bfcl.formats import format_names
from seal.method.interface.evolve import permanent_cues
from seal.records.trajectory import count_labels
from seal.settings.interface import EvolveSettings
from seal.system.paths import HOME

pytestmark = [pytest.mark.slow, pytest.mark.recipes]

TINY = (
    "data.train_batch_size=1",
    "actor_rollout_ref.actor.ppo_mini_batch_size=1",
    "actor_rollout_ref.rollout.n=2",
    "actor_rollout_ref.model.enable_gradient_checkpointing=true",
    "seal.rollout.max_message_tokens=128",
    "seal.rollout.max_steps=8",
    "trainer.total_training_steps=2",
    "trainer.val_before_train=false",
    "trainer.test_freq=2",
    "trainer.save_freq=-1",
)
LONG = (
    "data.max_prompt_length=15360",
    "data.max_response_length=1024",
    "actor_rollout_ref.rollout.max_model_len=16384",
    "actor_rollout_ref.rollout.max_num_batched_tokens=16384",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384",
)
RUNS = (
    ("bfcl_qwen_fc", "vanilla"),
    ("toolace_official_prompt", "without_reweighting"),
    ("compact", "without_closed_loop"),
    ("compact_arguments", "random_labels"),
    ("compact", "without_environment"),
    ("compact", "permuted_labels"),
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """The small policy with room for long prompts, and tokens for the indentation of JSON documents."""
    source, folder = HOME / "data" / "quickstart_policy", tmp_path_factory.mktemp("policy")
    tokenizer, model = AutoTokenizer.from_pretrained(source), AutoModelForCausalLM.from_pretrained(source)
    tokenizer.add_tokens([" " * width for width in range(4, 28, 4)])
    tokenizer.model_max_length = model.config.max_position_embeddings = 16384
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Selections of first turns whose tools are of one class, so that prompts are short."""
    ids, folder = {"train": (16, 37), "eval": (39,)}, tmp_path_factory.mktemp("tasks")
    for side, numbers in ids.items():
        (folder / side).write_text("".join(f"multi_turn_base_{number}\n" for number in numbers))
    return (
        f"seal.data.train={{categories: [base], prefix_turns: [1], task_file: {folder}/train, mixture: []}}",
        f"seal.data.val=[{{split: eval, prefix_turns: [1], task_file: {folder}/eval}}]",
    )


def test_every_mode_and_every_ablation_has_its_run():
    assert {mode for mode, _ in RUNS} == set(format_names())
    assert {ablation for _, ablation in RUNS} == {path.stem for path in (HOME / "exp" / "ablation").glob("*.yaml")}


@pytest.mark.parametrize(("mode", "ablation"), RUNS)
def test_a_mode_and_an_ablation_train(make_run, policy, tasks, mode, ablation):
    sizes = () if mode.startswith("compact") else (*LONG, f"actor_rollout_ref.model.path={policy}")
    run = make_run(*TINY, *tasks, *sizes, f"env_service.prompt_mode={mode}", f"ablation={ablation}")
    done = run.finish(deadline_s=1800)
    assert done.returncode == 0, done.stdout
    steps = run.lines("seal_log/steps.jsonl")
    assert [step["step"] for step in steps] == [1, 2]
    for step in steps:
        assert not step["infra"] and step["logp_diff_mean"] < 1e-4
        trajectories = run.lines(f"seal_log/trajectories/{step['step']}.jsonl")
        assert len(trajectories) == 2 and {each["prompt_mode"] for each in trajectories} == {mode}
        assert all(each["tokens"] > 0 and each["labels"] for each in trajectories)
        # A turn that a budget cut has a label and is not counted; the controls exchange the names of others.
        assert sum(step["label_counts"].values()) == count_labels(each["labels"] for each in trajectories).total()
        assert {each["omega_version"] is None for each in trajectories} == {step["omega"] is None}
    (validated,) = run.lines("validation_log/2.jsonl")
    assert validated["prompt_mode"] == mode and validated["omega_version"] is None
    (record,) = (HOME / "launcher_record" / run.name).iterdir()
    settings = OmegaConf.load(record / "trainer.yaml").seal
    sources = {"random_labels": "random", "permuted_labels": "permuted"}
    assert settings.diagnosis.source == sources.get(ablation, "verifier")
    ONLY[ablation](steps, settings)


def vanilla(steps, settings):
    assert not settings.enabled
    assert all(step["w"] == {"mean": 1.0, "min": 1.0, "max": 1.0} and step["omega"] is None for step in steps)
    assert all(step["events"] == [] for step in steps)


def without_environment(steps, settings):
    assert all(step["omega"] is None and step["w"]["min"] >= 0.5 for step in steps)
    # Two invalid tool calls leave rho where it is: their utility is at its bound.
    assert settings.closed_loop and settings.reweighting.enabled and settings.reweighting.dynamic


def without_reweighting(steps, settings):
    assert settings.interface.enabled
    assert all(step["w"]["min"] == step["w"]["max"] == 1 and step["omega"] is not None for step in steps)


def without_closed_loop(steps, settings):
    assert not settings.closed_loop and steps[0]["rho"] == steps[1]["rho"] and steps[0]["omega"] == steps[1]["omega"]
    assert set(steps[0]["omega"]["cues"]) == permanent_cues(
        EvolveSettings(left_out=tuple(settings.interface.evolve.left_out))
    ) and not any(step["events"] for step in steps)


def random_labels(steps, settings):
    # Two labels a step may be drawn as they were: tests/training/test_closed_loop.py has enough to tell.
    assert settings.enabled and all(step["omega"] is not None for step in steps)


def permuted_labels(steps, settings):
    assert all(step["omega"] is not None for step in steps)


ONLY = {
    each.__name__: each
    for each in (
        vanilla,
        without_environment,
        without_reweighting,
        without_closed_loop,
        random_labels,
        permuted_labels,
    )
}
