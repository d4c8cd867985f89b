"""The environment service of a launch or an evaluation: found, asked, started and stopped only here.

A service that another process started ends with it (`owner` of /version), so only an independent one is used: that of
`seal serve`, or of the launch script.
"""

import os
from collections.abc import Callable, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from omegaconf import DictConfig

from env_service import variable
from env_service.client import ServiceClient, ServiceError
from env_service.environments.bfcl.task_file import read_task_file
from env_service.environments.registry import get_environment
from env_service.local_service import COMMAND, LocalService, this_process
from env_service.protocol import DEFAULT_ENVIRONMENT, PROTOCOL
from seal.rollout.services import addresses
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.net import LOOPBACK, free_port, is_address, is_free, is_loopback
from seal.system.paths import HOME

PROBE_TIMEOUT_S = 15.0  # a service that is starting takes connections before it answers
IMPORT_TIMEOUT_S = 60.0
MAX_RESTARTS = 3
FIX = "let the launcher start one of its own with --with-service, or set env_service.env_url to another one"


class Needs(NamedTuple):
    """What a service must play: environments, and files of synthesised tasks."""

    environments: tuple[str, ...]
    task_files: tuple[str, ...] = ()


class Found(NamedTuple):
    """Where a run's services are. version: the one they report; None if one is yet to be started at the only address.

    notice: why it starts elsewhere than the recipe says, for the user.
    """

    urls: tuple[str, ...]
    version: dict[str, Any] | None
    notice: str = ""


def service_urls(config: DictConfig) -> tuple[str, ...]:
    """The addresses in env_service.env_url; LaunchError if one is not an HTTP address."""
    urls = tuple(url.rstrip("/") for url in addresses(config.env_service.env_url or ()))
    for url in urls:
        if not is_address(url):
            raise LaunchError(f"env_service.env_url={url} is not an address: write http://HOST:PORT.")
    if not urls or len(set(urls)) < len(urls):
        raise LaunchError("env_service.env_url must be one address, or a list of different ones.")
    return urls


def probe(url: str) -> dict[str, Any] | None:
    """The service's version at `url`, {} if something else answers, None if nothing; LaunchError for a wrong token."""
    try:
        with ServiceClient(url, deadline_s=PROBE_TIMEOUT_S, attempts=1) as client:
            return client.version().model_dump()
    except ValueError:  # not an address
        return {}
    except ServiceError as error:
        if error.cause == "environment_refused":
            raise LaunchError(
                f"The environment service at {url} refuses this client ({str(error).rstrip('.')}): set "
                f"{variable('token')} here, or in .env, to the one that it was started with."
            ) from error
        return None if error.cause == "environment_unreachable" else {}


def find_running(urls: Sequence[str], needs: Needs) -> Found:
    """The services that run at `urls`; LaunchError if one is not there, another run's, different or cannot play."""
    versions = {}
    for url in urls:
        if (answer := probe(url)) is None:
            raise LaunchError(
                f"No environment service answers at {url}: start it with `seal serve`, let the launcher start it with "
                "--with-service, or set env_service.env_url."
            )
        versions[url] = _require(url, answer, needs, FIX)
        if versions[url] != versions[urls[0]]:
            raise LaunchError(
                f"The services at {urls[0]} and {url} differ ({versions[urls[0]]} and {versions[url]}): run the same "
                "version of both, or remove one from env_service.env_url."
            )
    return Found(tuple(urls), versions[urls[0]])


def find_or_place(urls: Sequence[str], needs: Needs) -> Found:
    """The service that runs at the only address of `urls`, or a place for one: there, or a free port here."""
    url, *more = urls
    if more:
        raise LaunchError(
            f"--with-service starts one service, but env_service.env_url names {len(urls)}: start them with "
            "`seal serve` and omit --with-service."
        )
    here = is_loopback(urlsplit(url).hostname or "")
    try:
        answer = probe(url)
        if answer is not None or not is_free(url):
            return Found((url,), _require(url, answer or {}, needs, "it is left alone"))
    except LaunchError as error:
        if not here:
            raise
        return _elsewhere(str(error))
    if not here:
        raise LaunchError(
            f"--with-service starts a service on this machine's loopback, but env_service.env_url={url} is elsewhere: "
            f"start that one with `seal serve` and omit --with-service."
        )
    return Found((url,), None)


def _elsewhere(reason: str) -> Found:
    free = f"http://{LOOPBACK}:{free_port()}"
    return Found((free,), None, f"{reason} The environment service starts at {free}.")


def _require(url: str, answer: dict[str, Any], needs: Needs, fix: str) -> dict[str, Any]:
    """The version that a service answered, without its owner; LaunchError, with what to do, if it cannot be used.

    It cannot if it is another process's, speaks another protocol, has other data of an environment, or lacks tasks.
    """
    if not answer:
        raise LaunchError(f"Something other than the environment service answers at {url}: {fix}.")
    if (owner := answer.pop("owner", "")) not in ("", this_process()):
        raise LaunchError(f"The environment service at {url} ends with {owner}, which started it: {fix}.")
    for name in needs.environments:
        own = {"protocol": PROTOCOL, **get_environment(name).version()}
        asked = methodcaller("version", name)
        there = answer if name == DEFAULT_ENVIRONMENT else _ask(url, asked, f"cannot play {name}", fix).model_dump()
        for key, value in own.items():
            if there.get(key) != value:
                raise LaunchError(
                    f"The environment service at {url} plays {name} with {key} {str(there.get(key))[:12]}, and "
                    f"here it is {str(value)[:12]}: {fix}."
                )
    served = set(_ask(url, methodcaller("tasks", "synth"), "does not list its tasks", fix) if needs.task_files else ())
    for file in needs.task_files:
        if missing := {task.id for task in read_task_file(file)} - served:
            raise LaunchError(
                f"The environment service at {url} does not serve {len(missing)} tasks of {file} ({min(missing)} "
                f"is one): {fix}, or start it with that file in {variable('task_files')}."
            )
    return answer


def _ask(url: str, question: Callable[[ServiceClient], Any], failure: str, fix: str) -> Any:
    """A service's answer to a question that may make a worker import an environment; LaunchError without one."""
    try:
        with ServiceClient(url, deadline_s=IMPORT_TIMEOUT_S, attempts=1) as client:
            return question(client)
    except ServiceError as error:
        reason = str(error).rstrip(".")
        raise LaunchError(f"The environment service at {url} {failure} ({reason}): {fix}.") from error


class Service:
    """The service that was found, or one that this process starts, watches and stops; log: its output.

    url, notice: their values after the start, because another process may take the address before the service listens.
    """

    def __init__(self, found: Found, needs: Needs, log: Path):
        self.url, self.notice = found.urls[0], found.notice
        self._version, self._needs, self._log = found.version, needs, log
        self._local: LocalService | None = None
        self._restarts = 0

    def start(self) -> dict[str, Any]:
        """Start it unless it runs, and wait until it can play; its version. LaunchError if it cannot."""
        if self._version is not None:
            return self._version
        while self._local is None:
            try:
                self._launch(exits.REFUSED)
            except LaunchError:
                if is_free(self.url):
                    raise
                (self.url,), _, self.notice = _elsewhere(f"Another program took {self.url} while the service started.")
        fix = f"{self._log} says more"
        answer = _ask(self.url, methodcaller("version"), "does not tell its version", fix).model_dump()
        return _require(self.url, answer, self._needs, fix)

    def _launch(self, code: int) -> None:
        parts, variables = urlsplit(self.url), {}
        if self._needs.task_files:
            # The user's script starts in another folder.
            variables[variable("task_files")] = ",".join(str(Path(file).resolve()) for file in self._needs.task_files)
        command, cwd = COMMAND, HOME
        if script := os.environ.get(variable("script")):
            command, cwd = ["bash", "-c", script], HOME / "env_service" / "launch_script"
        self._local = LocalService(self._log, parts.port or 80, parts.hostname or LOOPBACK, command, cwd, **variables)
        try:
            self._local.start()
        except ServiceError as error:
            self._local = None
            raise LaunchError(str(error), code, error.cause) from error

    def ensure_running(self) -> str | None:
        """Restart our service if it has ended; returns a sentence about it, None while it runs.

        The rollouts rebuild their episodes. LaunchError (infrastructure) if it has ended too often.
        """
        if self._local is None or (ended := self._local.ended()) is None:
            return None
        if self._restarts == MAX_RESTARTS:
            again = f"It was started again {MAX_RESTARTS} times already"
            raise LaunchError(f"{ended} {again} (log: {self._log})", exits.INFRASTRUCTURE, "environment_unreachable")
        self._restarts += 1
        self.stop()
        self._launch(exits.INFRASTRUCTURE)
        return f"{ended} Started again ({self._restarts} of {MAX_RESTARTS} times); its episodes are rebuilt."

    def stop(self) -> None:
        """Stop what start() started, and nothing else."""
        if self._local is not None:
            self._local.stop()
