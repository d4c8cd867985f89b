"""From a trained checkpoint to a model that is served and evaluated, by the commands of docs/evaluate.md."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from tests.support.launches import HOME, free_url

DEADLINE_S = 600

pytestmark = pytest.mark.slow


def python(*arguments):
    """Run `python -m ...` as a user does."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=HOME,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout


def test_what_was_trained_is_exported_served_and_evaluated(make_run, tmp_path):
    run = make_run(
        "data.train_batch_size=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.actor.optim.lr_warmup_steps=0",
        "trainer.total_training_steps=1",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
    )
    done = run.finish()
    assert done.returncode == 0, done.stdout
    exported, out = tmp_path / "exported", tmp_path / "out"
    python("seal.cli", "export", run.folder, "--out", exported)

    weights = load_file(exported / "model.safetensors")
    start = load_file(HOME / "data" / "quickstart_policy" / "model.safetensors")
    assert weights.keys() == start.keys()
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert any(not torch.equal(tensor, start[name]) for name, tensor in weights.items())

    tasks = ("--categories", "base", "--prefix-turns", "1", "--limit", "4", "--prompt-mode", "compact")
    python("seal.cli", "evaluate", "bfcl", "--checkpoint", exported, *tasks, "--env-url", free_url(), "--out", out)
    lines = [json.loads(line) for line in (out / "validation_log" / "0.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    assert all(line["infra"] is None and line["labels"] and line["tokens"] for line in lines)
