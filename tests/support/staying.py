"""A command as a harness that plays rollout after rollout, and does something odd in its second one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "exp" / "harness"))
from plain_text import ask, play

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
KEPT: list[bytes] = []


def dying() -> None:
    raise SystemExit("it dies")


def killed() -> None:
    messages, key = ask(os.environ["SEAL_TASK_URL"])["messages"], os.environ["OPENAI_API_KEY"]
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages}
    ask(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body, key)
    os.kill(os.getpid(), signal.SIGKILL)


def hanging() -> None:
    time.sleep(600)


def leaving() -> None:
    print("it leaves")


def growing() -> None:
    KEPT.append(os.urandom(300 * 2**20))
    play()


def staying() -> None:
    play()
    time.sleep(600)


def leaking() -> None:
    child = subprocess.Popen([*SLEEP, "leaked"], start_new_session=True)
    subprocess.Popen([sys.executable, "-c", f"import subprocess; subprocess.Popen({[*SLEEP, 'leaked']!r})"]).wait()
    play()
    assert child.poll() is None


if __name__ == "__main__":
    subprocess.Popen([*SLEEP, "own"])
    number = 0
    while True:
        os.environ.update(ask(os.environ["SEAL_NEXT_URL"]))
        number += 1
        print("process", os.getpid(), flush=True)
        (play if number != 2 else globals()[sys.argv[1]])()
