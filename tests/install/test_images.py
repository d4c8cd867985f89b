"""The images are made of files that exist, and of nothing that belongs to one machine."""

import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from seal.settings import SealSettings

HOME = Path(__file__).resolve().parents[2]
DOCKERFILES = [
    *sorted((HOME / "docker").glob("*.Dockerfile")),
    HOME / "shelf" / "adapters" / "openenv" / "server" / "Dockerfile",
]


def copied(dockerfile: Path) -> list[str]:
    """Return the paths that a Dockerfile copies from the repository."""
    lines = [line.split() for line in dockerfile.read_text(encoding="utf-8").splitlines()]
    return [source for words in lines if words[:1] == ["COPY"] for source in words[1:-1]]


def ignored() -> list[str]:
    lines = (HOME / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_what_an_image_copies_exists_and_is_not_ignored(dockerfile):
    sources = copied(dockerfile)
    assert sources
    for source in sources:
        assert (HOME / source).exists(), source
        assert not any(fnmatch(source, pattern) for pattern in ignored()), source


def test_no_image_holds_secrets_runs_or_environments():
    assert {".env", ".git", ".venv", "experiments", "launcher_record"} <= set(ignored())


def test_the_service_s_image_holds_neither_the_trainer_nor_its_lock():
    text = (HOME / "docker" / "service.Dockerfile").read_text(encoding="utf-8")
    assert set(copied(HOME / "docker" / "service.Dockerfile")) == {"env_service", "seal"}
    assert "environments/bfcl/setup.sh" in text and "install.sh" not in text


def test_what_a_run_leaves_and_saves_outlives_its_container():
    for path in (HOME / "docker" / "trainer.Dockerfile", HOME / "docs" / "operate.md"):
        text = path.read_text(encoding="utf-8")
        assert all(f'-v "$PWD/{folder}:/seal/{folder}"' in text for folder in ("experiments", "launcher_record")), path
        (seconds,) = re.findall(r"--stop-timeout (\d+)", text)
        assert int(seconds) > SealSettings.model_fields["stop_grace_s"].default


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_no_shell_stands_between_a_signal_and_what_an_image_runs(dockerfile):
    lines = [line.split(maxsplit=1) for line in dockerfile.read_text(encoding="utf-8").splitlines()]
    started = [json.loads(words[1]) for words in lines if words[:1] in (["ENTRYPOINT"], ["CMD"])]
    assert started
    for script in (HOME / word for words in started for word in words if word.endswith(".sh")):
        assert script.read_text(encoding="utf-8").splitlines()[-1].startswith("exec ")
