"""How fast the viewer opens a large run: `python -m benchmarks.viewer [--keep FOLDER]`.

Makes a run of 20,000 trajectories of 30 kB from played episodes (600 MB), then
measures the viewer as a user starts it: without an index and with one. Beside the
seconds on the clock stand those of the viewer's processor time, which other work does not change.
"""

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil

from seal.system.net import free_port
from shelf.view.index import INDEX_FILE
from shelf.view.tests.viewer.played_run import write_run

STEPS, PROMPTS, ROLLOUTS = 79, 32, 8
SIZE = 30_000
WAIT_S = 300.0


def make_run(folder: Path) -> int:
    """Write the run; returns its bytes of trajectories."""
    write_run(folder, steps=2, groups=4)
    rng = random.Random(0)
    logged = (folder / "seal_log/trajectories/2.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in logged]
    words = " ".join(records[1]["output"][0]["content"] for _ in range(40)).split()
    steps = [json.loads(line) for line in (folder / "seal_log/steps.jsonl").read_text(encoding="utf-8").splitlines()]
    fillers = [" ".join(rng.choices(words, k=SIZE // 5)) for _ in range(64)]
    total = 0
    for step in range(1, STEPS + 1):
        lines = []
        for prompt in range(PROMPTS):
            task = f"multi_turn_base_{rng.randrange(200)}"
            for sample in range(ROLLOUTS):
                record = dict(rng.choice(records)) | {"step": step, "task_id": task, "sample": sample}
                record |= {"category": "base", "data_source": "base"}
                short = SIZE - len(json.dumps(record))
                filler = rng.choice(fillers)[: max(0, short - 30)]
                record["input"] = [*record["input"][:-1], {"role": "user", "content": f"prompt {prompt} {filler}"}]
                lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        text = "".join(lines)
        total += len(text.encode())
        (folder / f"seal_log/trajectories/{step}.jsonl").write_text(text, encoding="utf-8")
    with (folder / "seal_log/steps.jsonl").open("w", encoding="utf-8") as file:
        for step in range(1, STEPS + 1):
            file.write(json.dumps(steps[1] | {"step": step, "trajectories": PROMPTS * ROLLOUTS}) + "\n")
    return total


def started(folder: Path) -> tuple[subprocess.Popen, str, float]:
    """The viewer's process, its address, and when it was started."""
    port, begin = free_port(), time.monotonic()
    command = [sys.executable, "-m", "seal.cli", "view", str(folder), "--port", str(port)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL), f"http://127.0.0.1:{port}", begin


def until(address: str, path: str, ready: Callable[[httpx.Response], bool]) -> None:
    """Wait until an answer is as wanted."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):  # it does not listen yet
            answer = httpx.get(address + path, timeout=60, trust_env=False)
            if answer.is_success and ready(answer):
                return
        time.sleep(0.02)
    raise SystemExit(f"{path} was not answered within {WAIT_S:g} s")


def report(name: str, value: float, unit: str = "s", processor: float | None = None) -> None:
    own = "" if processor is None else f" {processor:9.3f} {unit} of processor time"
    sys.stdout.write(f"{name:<64} {value:9.3f} {unit}{own}\n")
    sys.stdout.flush()


def processor_seconds(process: subprocess.Popen) -> float:
    """What the viewer's process has used since its start, in seconds."""
    times = psutil.Process(process.pid).cpu_times()
    return times.user + times.system


def measure(folder: Path) -> None:
    """Measure one start without an index and one with it, and a search."""
    (folder / INDEX_FILE).unlink(missing_ok=True)
    name = folder.name
    for state in ("without an index", "with its index"):
        process, address, begin = started(folder)
        try:
            for what, path, ready in (
                ("the page is served", "/", lambda answer: True),
                ("the overview is answered", f"/api/overview?run={name}", lambda answer: True),
                (
                    "the newest trajectories are listed",
                    f"/api/trajectories?run={name}",
                    lambda answer: answer.json()["total"] > 0,
                ),
                (
                    "all trajectories are listed",
                    "/api/runs",
                    lambda answer: answer.json()["runs"][0]["index"]["ready"],
                ),
            ):
                until(address, path, ready)
                report(f"{state}: {what} after", time.monotonic() - begin, processor=processor_seconds(process))
            if state == "with its index":
                search(address, name)
        finally:
            process.terminate()
            process.wait(timeout=30)
    report("size of the index", (folder / INDEX_FILE).stat().st_size / 1e6, "MB")


def search(address: str, name: str) -> None:
    """Report the time of a search of the whole text."""
    begin = time.monotonic()
    asked = {"run": name, "text": "no such text anywhere"}
    found = httpx.get(f"{address}/api/trajectories", params=asked, timeout=60, trust_env=False).json()
    report(f"search of the whole text ({100 * found['searched']:.0f} % searched)", time.monotonic() - begin)


def main() -> None:
    """Make the run, or use that of --keep, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder for the run, kept and used again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="seal-viewer-") as temporary:
        folder = arguments.keep or Path(temporary) / "large"
        if not folder.exists():
            size = make_run(folder)
            sys.stdout.write(f"{STEPS * PROMPTS * ROLLOUTS} trajectories, {size / 1e6:.0f} MB\n")
        measure(folder)


if __name__ == "__main__":
    main()
