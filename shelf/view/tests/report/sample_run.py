"""A run's logs, drawn from a seed: what a training run of a few dozen steps leaves behind."""

import json
import random
from pathlib import Path

from env_service.environments.bfcl.splits import task_ids
from seal.training.checkpoints import track

LABELS = ("pass", "state_mismatch", "missing_tool_call", "invalid_tool_call", "argument_mismatch", "spurious_tool_call")


def write_run(folder: Path, steps: int = 40, seed: int = 0, validations: tuple[int, ...] = (0, 20, 40)) -> Path:
    """Write seal_log, validation_log and a checkpoint folder; the run improves as it goes."""
    rng = random.Random(seed)
    (folder / "seal_log").mkdir(parents=True)
    (folder / "validation_log").mkdir()
    (folder / "checkpoints" / f"global_step_{steps}").mkdir(parents=True)
    track(folder / "checkpoints", steps)
    lines = [_step(rng, step, steps) for step in range(1, steps + 1)]
    (folder / "seal_log" / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in validations:
        text = "".join(json.dumps(line) + "\n" for line in _validation(rng, step, steps))
        (folder / "validation_log" / f"{step}.jsonl").write_text(text)
    return folder


def _step(rng: random.Random, step: int, steps: int) -> dict:
    done = step / steps
    reward = min(1.0, max(0.0, 0.25 + 0.35 * done + rng.gauss(0, 0.04)))
    share = {"pass": reward, "state_mismatch": 0.3, "missing_tool_call": 0.1, "invalid_tool_call": 0.3 * (1 - done)}
    share |= {"argument_mismatch": 0.15 * (1 - done), "spurious_tool_call": 0.05}
    total = sum(share.values())
    counts = {label: round(200 * value / total) for label, value in share.items()}
    cues = ["call_format"] if 3 < step < 25 else []
    cues += ["required_arguments"] if 8 < step < 18 or step > 33 else []
    cues += ["reread_state"] if step > 12 else []
    return {
        "step": step,
        "reward_mean": reward,
        "pass_share": reward,
        "trajectories": 128,
        "groups_with_spread": 12,
        "label_counts": counts,
        "label_shares": {label: count / sum(counts.values()) for label, count in counts.items()},
        "rho": {
            "pass": 1.0,
            "state_mismatch": 1.0 + 0.3 * done,
            "missing_tool_call": 1.5,
            "invalid_tool_call": 2.0 - 0.2 * (1 - done),
            "argument_mismatch": 1.5 + 0.1 * (1 - done),
            "spurious_tool_call": 2.0,
        },
        "w": {"mean": 1.1 + rng.gauss(0, 0.02), "min": 0.9, "max": 1.8 - 0.2 * done},
        "omega": {"version": len(cues), "digest": "0" * 16, "cues": cues},
        "events": [
            {
                "step": step,
                "cue": "call_format",
                "on": True,
                "category": "*",
                "figures": {"prevalence": 0.2, "mean_reward": 0.1},
            }
        ]
        if step == 3
        else [],
        "seconds": {"step": 8.0 + rng.random(), "gen": 3.5, "old_log_prob": 1.0, "adv": 0.05, "update_actor": 3.0},
        "seal_seconds": 0.02,
        "logp_diff_max": 1e-6,
        "infra": {},
    }


def _validation(rng: random.Random, step: int, steps: int):
    done = step / steps
    for task in task_ids()["eval"]:
        category, turns = task.split("_")[2], 2 + int(task.split("_")[-1]) % 5
        ease = {"base": 0.16, "miss": 0.08, "long": 0.05}[category] * (1 + 1.5 * done)
        turns_passed = sum(rng.random() < ease + 0.3 for _ in range(turns))
        passed = rng.random() < ease
        turns_passed = turns if passed else min(turns_passed, turns - 1)
        yield {
            "input": "",
            "output": "",
            "score": float(passed),
            "step": step,
            "task_id": task,
            "data_source": "_".join(task.split("_")[2:-1]),
            "sample": 0,
            "labels": ["pass"] * turns_passed + [rng.choice(LABELS[1:]) for _ in range(turns - turns_passed)],
            "turns_passed": turns_passed,
            "turns": turns,
            "progress": turns_passed / turns,
            "calls": turns,
            "errors": 0,
            "tokens": 500,
            "seconds": 2.0,
            "stop": "completed",
            "data_hash": "d" * 64,
            "prompt_mode": "compact",
            "infra": None,
        }
