"""A harness plays a rollout before Ray and the rollout engine start, on the real service."""

import os
import sys
from types import SimpleNamespace

import pytest

from seal.launch.checks.harness import require_trial
from seal.launch.recipe import read_recipe
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from tests.support.rollout_play import running_service

OWN = "tests.support.harnesses:"


@pytest.fixture(scope="module")
def url():
    files = read_recipe(HOME / "exp" / "quickstart.yaml", ()).task_files
    with running_service(BFCL_TASK_FILES=",".join(str(HOME / file) for file in files)) as service:
        yield service.url


def tried(url, tmp_path, harness, failure="lost", *more):
    settings = (
        f"seal.rollout.harness={harness}",
        f"seal.rollout.harness_failure={failure}",
        f"seal.run_dir={tmp_path}",
        *more,
    )
    require_trial(read_recipe(HOME / "exp" / "quickstart.yaml", settings), url)


@pytest.mark.parametrize(
    ("harness", "failure"),
    [
        (f"[{sys.executable},exp/harness/plain_text.py]", "lost"),
        (f"{OWN}native", "lost"),
        (f"{OWN}over_mcp", "lost"),
        (f"{OWN}by_its_policy", "lost"),
        (f"{OWN}by_names_with_a_server", "lost"),
        (f"{OWN}judging", "lost"),
        ("tests.support.dialects:messages", "lost"),  # it counts the tokens of its prompts
        (f"{OWN}raising_later", "failed"),
    ],
)
def test_a_harness_that_plays_starts(url, tmp_path, harness, failure):
    tried(url, tmp_path, harness, failure)
    if not harness.startswith("["):
        tried(url, tmp_path, harness, failure, "env_service.prompt_mode=native")


@pytest.mark.parametrize(
    ("harness", "sentence"),
    [
        (f"{OWN}bare", r"tools\.0\.function: Field required"),
        (f"{OWN}raising_later", "no JSON"),
        (f'[{sys.executable},-c,"import no_such_sdk"]', "No module named 'no_such_sdk'"),
    ],
)
def test_a_harness_that_fails_is_refused_in_one_sentence(url, tmp_path, harness, sentence):
    with pytest.raises(LaunchError, match=rf"^seal\.rollout\.harness: .*{sentence}") as error:
        tried(url, tmp_path, harness)
    assert error.value.code == exits.REFUSED and "\n" not in str(error.value)


def test_a_request_that_the_gateway_refuses_is_no_failure_of_the_policy(url, tmp_path):
    with pytest.raises(LaunchError, match="response_format: the policy answers in text"):
        tried(url, tmp_path, f"{OWN}demanding", "failed")


def test_a_trial_has_the_variables_of_the_runs_processes(monkeypatch, tmp_path):
    seen, before = [], dict(os.environ)

    async def play(*_):
        seen.append(os.environ.get("SEAL_USER_API_KEY"))
        return SimpleNamespace(infra=None)

    monkeypatch.setattr("seal.rollout.harness.trial.play_trial", play)
    tried("http://127.0.0.1:9", tmp_path, f"{OWN}native", "lost", "+seal.process_env.SEAL_USER_API_KEY=key")
    assert seen == ["key"] and dict(os.environ) == before
