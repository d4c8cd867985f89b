"""The environment service as a process: find one that runs, check it, start one, stop it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from omegaconf import DictConfig
from pydantic import ValidationError

from env_service.environments.bfcl.task_file import read_task_file
from env_service.environments.registry import DEFAULT, get_environment
from env_service.protocol import PROTOCOL, Problem
from seal.rollout.service_probe import environment_version, served_tasks
from seal.rollout.service_probe import service_version as probe
from seal.rollout.services import addresses
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.net import LOOPBACK, is_loopback
from seal.system.paths import HOME
from seal.system.processes import start, stop_tree
from seal.system.text import last_line

START_DEADLINE_S = 120.0
STOP_GRACE_S = 5.0
MAX_RESTARTS = 3
FIX = "stop it and let the launcher start one with --with-bfcl, or set env_service.env_url to another one"


WITH_BFCL = "let the launcher start one with --with-bfcl"


def service_urls(config: DictConfig, to_start: bool = False) -> tuple[str, ...]:
    """The addresses that env_service.env_url names, one or a list.

    LaunchError if one is not an HTTP address, or if the launcher is to start
    (`to_start`) more than one.
    """
    urls = tuple(url.rstrip("/") for url in addresses(config.env_service.env_url or ()))
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LaunchError(f"env_service.env_url={url} is not an address: write http://HOST:PORT.")
    if not urls or len(set(urls)) < len(urls):
        raise LaunchError("env_service.env_url must be one address, or a list of different ones.")
    if to_start and len(urls) > 1:
        raise LaunchError(
            f"--with-bfcl starts one service, but env_service.env_url names {len(urls)}: start them with "
            "`bash env_service/launch_script/bfcl.sh` and omit --with-bfcl."
        )
    return urls


def require_services(urls: Sequence[str]) -> dict:
    """The version answer that all running services give; LaunchError if one is missing or differs."""
    first, *others = urls
    version = require_service(first)
    for url in others:
        other = require_service(url)
        for key in version:
            if other.get(key) != version[key]:
                raise LaunchError(
                    f"The services at {first} and {url} differ in {key} ({version[key]} and {other.get(key)}): run the "
                    "same version of both, or remove one from env_service.env_url."
                )
    return version


def require_service(url: str) -> dict:
    """The version answer of a running service; LaunchError if nothing or something else answers."""
    answer = probe(url)
    if answer is None:
        raise LaunchError(
            f"No environment service answers at {url}: start it with `bash env_service/launch_script/bfcl.sh`, "
            "let the launcher start it with --with-bfcl, or set env_service.env_url."
        )
    if not answer:
        raise LaunchError(
            f"Something other than the environment service answers at {url}: set env_service.env_url to the service's "
            "address, or to a free port if you pass --with-bfcl."
        )
    return answer


def require_agreement(url: str, version: Mapping[str, Any]) -> None:
    """LaunchError if the service at `url` speaks another protocol, or serves other data, than this checkout."""
    if version.get("protocol") != PROTOCOL:
        raise LaunchError(
            f"The environment service at {url} speaks protocol {version.get('protocol')} and this SEAL speaks "
            f"{PROTOCOL}: {FIX}."
        )
    package = json.loads((HOME / "data" / "manifest.json").read_text(encoding="utf-8"))["package"]
    if version["data_hash"] != package["data_hash"]:
        raise LaunchError(
            f"The environment service at {url} serves bfcl-eval {version.get('bfcl_eval')} with data "
            f"{version['data_hash'][:12]}, and data/manifest.json records {package['version']} with "
            f"{package['data_hash'][:12]}: {FIX} that has the recorded data."
        )


def require_environments(urls: Sequence[str], names: Sequence[str], otherwise: str = FIX) -> None:
    """LaunchError if a running service cannot play one of these environments, or has other data than this checkout's.

    The benchmark is left to :func:`require_agreement`. otherwise: what can be done about it.
    """
    for name in names:
        if name == DEFAULT:
            continue
        own = get_environment(name).version()
        for url in urls:
            try:
                found = environment_version(url, name)
            except httpx.HTTPError as error:
                raise LaunchError(
                    f"The environment service at {url} cannot play {name} ({_reason(error)}): {otherwise}."
                ) from error
            for key, value in own.items():
                if found.get(key) != value:
                    raise LaunchError(
                        f"The environment service at {url} plays {name} with {key} {str(found.get(key))[:12]}, and "
                        f"here it is {str(value)[:12]}: {otherwise} with the same package."
                    )


def _reason(error: httpx.HTTPError) -> str:
    """The service's own sentence about a refusal; what the client says if there is none."""
    if not isinstance(error, httpx.HTTPStatusError):
        return str(error)
    try:
        return Problem.model_validate_json(error.response.content).detail.rstrip(".")
    except ValidationError:
        return str(error)


def require_tasks(urls: Sequence[str], files: Sequence[str], otherwise: str = WITH_BFCL) -> None:
    """LaunchError if one of the running services does not serve every task of these files.

    otherwise: what can be done instead of starting the service with the file.
    """
    for file in files:
        wanted = {task.id for task in read_task_file(file)}
        for url in urls:
            try:
                missing = wanted - served_tasks(url)
            except httpx.HTTPError as error:
                raise LaunchError(
                    f"The environment service at {url} does not list its tasks ({error}): {FIX}."
                ) from error
            if missing:
                raise LaunchError(
                    f"The environment service at {url} does not serve {len(missing)} tasks of {file} ({min(missing)} "
                    f"is one): start it with BFCL_TASK_FILES={file}, or {otherwise}."
                )


class Service:
    """A service that this process starts; one that already runs at the address is used and left running.

    task_files: the files of synthesised tasks that a service started here serves. delay_seconds:
    the median time for which it holds back its answers to steps.
    """

    def __init__(self, url: str, log: Path, task_files: Sequence[str] = (), delay_seconds: float = 0):
        self.url = url.rstrip("/")
        self._log = log
        self._task_files = tuple(task_files)
        self._delay_seconds = delay_seconds
        self._process: subprocess.Popen | None = None
        self._restarts = 0

    def start(self) -> bool:
        """Start the service and wait until it is healthy; False if one was already running there."""
        if probe(self.url) is not None:
            require_service(self.url)
            return False
        if not is_loopback(urlsplit(self.url).hostname or ""):
            raise LaunchError(
                f"--with-bfcl starts a service on this machine's loopback, but env_service.env_url={self.url} is "
                "elsewhere: start that one with `bash env_service/launch_script/bfcl.sh` and omit --with-bfcl."
            )
        self._launch()
        return True

    def _launch(self) -> None:
        """Start the process and wait until it is healthy."""
        address = urlsplit(self.url)
        env = {"BFCL_HOST": address.hostname or LOOPBACK, "BFCL_PORT": str(address.port or 80)}
        if self._task_files:
            # The script of BFCL_SCRIPT starts in another folder.
            env["BFCL_TASK_FILES"] = ",".join(str(Path(file).resolve()) for file in self._task_files)
        if self._delay_seconds:
            env["BFCL_DELAY_SECONDS"] = str(self._delay_seconds)
        command, cwd = [sys.executable, "-m", "env_service"], HOME
        if script := os.environ.get("BFCL_SCRIPT"):
            command, cwd = ["bash", "-c", script], HOME / "env_service" / "launch_script"
        self._process = start(command, log=self._log, cwd=cwd, env=env)
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise LaunchError(
                    f"The environment service ended with code {self._process.returncode} before it was ready: "
                    f"{last_output(self._log)} (log: {self._log})"
                )
            if probe(self.url):
                return
            time.sleep(0.3)
        self.stop()
        raise LaunchError(f"The environment service was not ready within {START_DEADLINE_S:.0f} s; see {self._log}.")

    def ensure_running(self) -> str | None:
        """Restart our service if it has ended; returns a sentence about it, None while it runs.

        The rollouts rebuild their episodes. LaunchError (infrastructure) if it has ended too often.
        """
        if self._process is None or self._process.poll() is None:
            return None
        ended = f"The environment service ended with code {self._process.returncode}: {last_output(self._log)}"
        if self._restarts == MAX_RESTARTS:
            again = f"It was started again {MAX_RESTARTS} times already"
            raise LaunchError(f"{ended} {again} (log: {self._log})", exits.INFRASTRUCTURE)
        self._restarts += 1
        self.stop()
        try:
            self._launch()
        except LaunchError as error:
            raise LaunchError(str(error), exits.INFRASTRUCTURE) from error
        return f"{ended} Started again ({self._restarts} of {MAX_RESTARTS} times); its episodes are rebuilt."

    def stop(self) -> None:
        """Stop what start() started, and nothing else."""
        if self._process is not None:
            stop_tree(self._process, STOP_GRACE_S)
            self._process = None


def last_output(log: Path) -> str:
    """The last line of a process's log."""
    return last_line(log.read_text(encoding="utf-8", errors="replace"), "no output")
