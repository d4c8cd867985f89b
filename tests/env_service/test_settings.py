"""The settings of the service: variables, options, and what is refused."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from env_service import variable
from env_service.settings import ServerSettings, read_settings
from seal.cli.serve import app

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ServerSettings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)


def test_variables_are_read_and_options_take_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BFCL_PORT", "9000")
    monkeypatch.setenv("BFCL_CALL_SECONDS", "2.5")
    monkeypatch.setenv("BFCL_WORKERS", "")
    settings = read_settings(port=9001)
    assert (settings.port, settings.call_seconds, settings.workers) == (9001, 2.5, 0)
    assert read_settings().port == 9000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("port", "eighty"),
        ("port", "70000"),
        ("workers", "-1"),
        ("call_seconds", "0"),
        ("call_seconds", "nan"),
        ("request_seconds", "inf"),
        ("memory_mb", "1.5"),
        ("max_episodes", "0"),
        ("environments", "counter"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(variable(name), text)
    with pytest.raises(ValueError) as error:
        read_settings()
    message = str(error.value)
    assert message.startswith(variable(name)) and repr(text) in message and "\n" not in message


@pytest.mark.parametrize(
    ("host", "needs_token"),
    [("127.0.0.1", False), ("127.8.8.8", False), ("localhost", False), ("::1", False), ("0.0.0.0", True), ("a", True)],
)
def test_a_host_that_others_reach_needs_a_token(host: str, needs_token: bool) -> None:
    assert read_settings(host=host, token="secret").host == host
    if needs_token:
        with pytest.raises(ValueError, match=f"BFCL_HOST={host} .* set BFCL_TOKEN"):
            read_settings(host=host)
    else:
        assert read_settings(host=host).token == ""


def test_the_command_has_an_option_for_every_setting_of_a_user_but_the_token() -> None:
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    for name in set(ServerSettings.model_fields) - {"token", "owner"}:
        assert f"--{name.replace('_', '-')} " in text and variable(name) in text
    assert "--token" not in text


def test_the_command_serves_with_its_options_over_the_variables(
    start_service: Callable[..., AbstractContextManager[int]],
) -> None:
    command = [sys.executable, "-m", "seal.cli", "serve", "--port", "0", "--workers", "1"]
    with start_service(command=command, BFCL_PORT="1", BFCL_WORKERS="many") as port:
        assert port > 1


def test_the_command_ends_with_code_1_and_one_sentence() -> None:
    command = [sys.executable, "-m", "seal.cli", "serve", "--port", "70000"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "BFCL_PORT must be less than or equal to 65535, got 70000.\n"
