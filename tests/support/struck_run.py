"""Runs that suffer a fault while they train, and what must hold afterwards."""

import contextlib
import json
import shutil
import time
from uuid import uuid4

import torch

from seal.training.checkpoints import whole_steps
from tests.support.launches import HOME, Run

NOTICED_S = 120
"""A death must end the launch within this time; the deadline of a step is two hours."""


@contextlib.contextmanager
def experiment(name, settings):
    """A run of the quickstart with these settings; its folders are removed at the end."""
    run = Run(f"{name}-{uuid4().hex[:8]}", settings)
    yield run
    shutil.rmtree(run.folder, ignore_errors=True)
    shutil.rmtree(HOME / "launcher_record" / run.name, ignore_errors=True)


def strike(run, when, title, what, *, pause_s=0.05, after=1):
    """Start the run, wait for stage `when` of a step after the saved one, and kill -9 a process."""
    step, began = run.saved + after, time.time()
    launcher = run.start()
    try:
        run.wait_for(launcher, lambda: run.reached(when, step, began), f"stage {when} ({what})", pause_s)
        run.process(launcher, title).kill()
        output, _ = launcher.communicate(timeout=NOTICED_S)
    finally:
        if launcher.poll() is None:  # or the next test would find the folder in use
            launcher.terminate()
            launcher.communicate(timeout=NOTICED_S)
    return launcher.returncode, error_of(output)


def error_of(output):
    errors = [line for line in output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "Traceback" not in output, output
    return errors[0]


def check_intact(run):
    assert run.leftovers() == []
    assert run.saved in whole_steps(run.checkpoints) or run.saved == 0
    assert run.logged == sorted(set(run.logged))


def assert_same(one, other, steps):
    """Both runs took the same `steps` steps: trajectories, logs, validations, state and weights."""
    assert one.logged == other.logged == list(range(1, steps + 1))
    for step in range(1, steps + 1):
        name = f"seal_log/trajectories/{step}.jsonl"
        assert deterministic(one.lines(name)) == deterministic(other.lines(name)), f"step {step}"
    for name in ("steps", "profile", "omega"):
        assert deterministic(one.lines(f"seal_log/{name}.jsonl")) == deterministic(
            other.lines(f"seal_log/{name}.jsonl")
        )
    for step in (0, steps):
        name = f"validation_log/{step}.jsonl"
        assert deterministic(one.lines(name)) == deterministic(other.lines(name))
    assert state(one, steps) == state(other, steps)
    for weight, same in zip(weights(one, steps), weights(other, steps), strict=True):
        assert torch.equal(weight, same)


MEASURED = frozenset(("seconds", "seal_seconds", "logp_diff_max", "logp_diff_mean", "times"))


def deterministic(lines):
    """Return log lines without clock times and without rounding errors."""
    kept = _unmeasured(lines)
    for row in (row for line in kept for row in line.get("teaching", {}).values()):
        row.pop("transfer", None)  # half of it is the engine's log-probs
    return kept


def _unmeasured(value):
    if isinstance(value, dict):
        return {key: _unmeasured(part) for key, part in value.items() if key not in MEASURED}
    return [_unmeasured(part) for part in value] if isinstance(value, list) else value


def state(run, step):
    envelope = json.loads((run.checkpoints / f"global_step_{step}" / "seal_state.json").read_text())
    return json.loads(envelope["state"])["loop"]


def weights(run, step):
    saved = torch.load(
        run.checkpoints / f"global_step_{step}" / "actor" / "model_world_size_1_rank_0.pt", weights_only=False
    )
    return [getattr(value, "_local_tensor", value) for _, value in sorted(saved.items())]
