"""A launcher that trains nothing: the same command line, folder, lock, signals and exit codes as the real one.

It writes the logs of a run within a second, and imports little, because it is started often. $STAND_IN
names a JSON file that says what happens to a run: {"arm-seed": {"at": step, "do": ..., "times": n}}; do is
an exit code, "kill", "hang" or "refuse". Every start is noted beside it. $STAND_IN_SCENARIOS: what it validates on.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from seal.system import exits
from seal.system.lock import Locked, lock

STEPS, EVERY, STEP_S = 4, 2, 0.02


def main() -> int:
    settings = dict(argument.split("=", 1) for argument in sys.argv[sys.argv.index("--") + 1 :])
    folder = Path(settings["seal.run_dir"])
    plan = Path(os.environ["STAND_IN"])
    stopped = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, _frame: stopped.append(signum))
    with plan.with_suffix(".starts").open("a") as file:
        started = {"run": folder.name, "pid": os.getpid(), "settings": settings}
        file.write(json.dumps(started | {"devices": os.environ.get("CUDA_VISIBLE_DEVICES")}) + "\n")
    try:
        with lock(folder / "launcher.lock"):
            return train(folder, json.loads(plan.read_text()).get(folder.name), plan, stopped)
    except Locked:
        print(f"error: {folder} is in use")
        return exits.REFUSED


def train(folder: Path, event: dict | None, plan: Path, stopped: list[int]) -> int:
    checkpoints = folder / "checkpoints"
    saved = max((int(path.name.split("_")[-1]) for path in checkpoints.glob("global_step_*")), default=0)
    (folder / "seal_log" / "trajectories").mkdir(parents=True, exist_ok=True)
    (folder / "validation_log").mkdir(exist_ok=True)
    log = folder / "seal_log" / "steps.jsonl"
    kept = log.read_text().splitlines(keepends=True)[:saved] if log.exists() else []
    log.write_text("".join(kept))
    seed = int(folder.name.rsplit("-", 1)[1])
    with (folder / "seal_log" / "launches.jsonl").open("a") as file:
        launch = {"step": saved, "config": {}, "commit": str(saved) * 40, "hashes": {"model/config.json": "0"}}
        file.write(json.dumps(launch) + "\n")
    if saved == 0:
        validate(folder, 0, seed)
    for step in range(saved + 1, STEPS + 1):
        with (folder / "seal_log" / "stages.jsonl").open("a") as file:
            file.write(json.dumps({"time": time.time(), "stage": "train", "step": step, "of": STEPS}) + "\n")
        if event and event["at"] == step and happens(folder, event, plan):
            return act(event["do"], stopped)
        time.sleep(float(os.environ.get("STAND_IN_STEP_S", STEP_S)))
        if stopped:
            (checkpoints / f"global_step_{step - 1}").mkdir(parents=True, exist_ok=True)
            track(checkpoints, step - 1)
            return 128 + stopped[0]
        with log.open("a") as file:
            file.write(json.dumps({"step": step, "reward_mean": 0.5, "seconds": {"step": 1.0}}) + "\n")
        (folder / "seal_log" / "trajectories" / f"{step}.jsonl").write_text("{}\n")
        if step % EVERY == 0:
            validate(folder, step, seed)
        checkpoint = checkpoints / f"global_step_{step}"
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / "weights").write_bytes(bytes(1000))
        track(checkpoints, step)
    return 0


def track(checkpoints: Path, step: int) -> None:
    (checkpoints / "latest_checkpointed_iteration.txt").write_text(str(step))


def happens(folder: Path, event: dict, plan: Path) -> bool:
    """Count an attempt, and return whether it is within the event's number of times."""
    count = plan.with_name(f"{folder.name}.count")
    times = int(count.read_text()) if count.exists() else 0
    count.write_text(str(times + 1))
    return times < event.get("times", 1)


def act(do, stopped: list[int]) -> int:
    if do == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "hang":
        while True:
            time.sleep(0.05)
            if stopped:
                return 128 + stopped[0]
    print(f"error: it ended as planned, with {do}")
    return do


def validate(folder: Path, step: int, seed: int) -> None:
    lines = [
        {
            "format": 1, "step": step, "task_id": f"multi_turn_base_{scenario}", "data_source": "base@1",
            "category": "base", "split": "eval", "sample": 0, "score": float((scenario + seed + step) % 3 == 0),
            "turns": 1, "turns_passed": int((scenario + seed + step) % 3 == 0), "prompt_mode": "compact",
        }
        for scenario in json.loads(os.environ["STAND_IN_SCENARIOS"])
    ]  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "validation_log" / f"{step}.jsonl").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
