"""A resume takes an optimizer's moments and its step from the checkpoint, and every setting from the recipe."""

import multiprocessing
import os

import pytest
import torch

from seal.launch.recipe import read_recipe
from seal.system.paths import HOME
from tests.support.training import PROCESS, batch_of, stepped, worker_of

OPTIM = "actor_rollout_ref.actor.optim"
STEPS = 3
BEFORE = (f"{OPTIM}.lr=1e-3", f"{OPTIM}.lr_warmup_steps=1", f"{OPTIM}.total_training_steps=10")
OWN = ("lr=2e-4", "weight_decay=0.3", "betas=[0.8,0.9]", "+override_optimizer_config={eps: 1e-3, maximize: true}")
CHANGES = {  # what changes: the settings of the optimizer's next step that it moves
    OWN: {"lr": 2e-4, "weight_decay": 0.3, "betas": (0.8, 0.9), "eps": 1e-3, "maximize": True},
    ("lr_warmup_steps=6",): {"lr": 1e-3 * STEPS / 6},
    ("lr_warmup_steps=-1", "lr_warmup_steps_ratio=0.5"): {"lr": 1e-3 * STEPS / 5},
    ("lr_scheduler_type=cosine", "lr_warmup_steps=0", "total_training_steps=6", "min_lr_ratio=0.5"): {"lr": 7.5e-4},
    ("lr_scheduler_type=cosine", "lr_warmup_steps=0", "total_training_steps=6", "num_cycles=1"): {"lr": 0.0},
}


def settings_of(worker):
    (group,) = worker.engine.optimizer.param_groups
    return {name: value for name, value in group.items() if name not in ("params", "initial_lr")}


def moments(worker):
    return [state["exp_avg"].full_tensor().clone() for state in worker.engine.optimizer.state.values()]


def played(place):
    """In a process of its own: by change, its next step's settings, and whether moments and schedule go on."""
    os.environ |= PROCESS | {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "1"}
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}/meeting", rank=0, world_size=1)

    def worker(*changes):
        keys = ["actor_rollout_ref.actor.use_kl_loss=false", *BEFORE]
        for change in changes:
            keys.append(f"+{OPTIM}.{change[1:]}" if change[0] == "+" else f"{OPTIM}.{change}")
        return worker_of(read_recipe(HOME / "exp" / "quickstart.yaml", keys).config.actor_rollout_ref, packed=64)

    def update(one):
        return stepped(one, batch_of([torch.arange(10, 20)], [torch.ones(4).long()], [1.0]))

    first = worker()
    for _ in range(STEPS):
        update(first)
    first.save_checkpoint(f"{place}/actor")
    saved, kept, found = settings_of(first), moments(first), {}
    after = update(first)["lr"]
    for change in ((), *CHANGES):
        resumed = worker(*change)
        resumed.load_checkpoint(f"{place}/actor")
        same = all(map(torch.equal, moments(resumed), kept))
        steps = {int(state["step"]) for state in resumed.engine.optimizer.state.values()}
        found[change] = settings_of(resumed), same and steps == {STEPS}, update(resumed)["lr"]
    return saved, after, found


@pytest.fixture(scope="module")
def resumes(tmp_path_factory):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply_async(played, (tmp_path_factory.mktemp("resumes"),)).get(timeout=300)


def test_a_resume_without_a_change_goes_on_as_it_was(resumes):
    saved, after, found = resumes
    assert found[()] == (saved, True, after)


@pytest.mark.parametrize("change", CHANGES, ids=" ".join)
def test_a_changed_setting_holds_in_the_next_step(resumes, change):
    saved, _, found = resumes
    settings, continued, _ = found[change]
    expected = saved | CHANGES[change]
    assert settings.pop("lr") == pytest.approx(expected.pop("lr"))
    assert settings == expected and continued


def test_the_rate_of_later_steps_is_the_changed_ones(resumes):
    _, _, found = resumes
    assert found[OWN][2] == pytest.approx(2e-4)
    assert found[("lr_warmup_steps=6",)][2] == pytest.approx(1e-3 * (STEPS + 1) / 6)
