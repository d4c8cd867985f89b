"""The environment service of a launch: found, asked, started and stopped only here."""

import os
from collections.abc import Callable, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from omegaconf import DictConfig

from env_service.client import ServiceClient, ServiceError
from env_service.environments.bfcl.task_file import read_task_file
from env_service.environments.registry import get_environment
from env_service.local_service import COMMAND, LocalService
from env_service.protocol import PROTOCOL
from seal.launch.recipe import Recipe
from seal.rollout.services import addresses
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.net import LOOPBACK, free_port, is_free, is_loopback
from seal.system.paths import HOME

PROBE_TIMEOUT_S = 3.0
IMPORT_TIMEOUT_S = 60.0
MAX_RESTARTS = 3
FIX = "stop it and let the launcher start one with --with-bfcl, or set env_service.env_url to another one"
LEFT_ALONE = "it is left alone"
WITH_BFCL = "start it with their file in BFCL_TASK_FILES, or let the launcher start one with --with-bfcl"


def service_urls(config: DictConfig, to_start: bool = False) -> tuple[str, ...]:
    """The addresses in env_service.env_url; LaunchError if one is not HTTP's, or for several that are `to_start`."""
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


def probe(url: str) -> dict[str, Any] | None:
    """The version answer of the service at `url`: {} if something else answers there, None if nothing does.

    LaunchError if the service does not accept BFCL_TOKEN of this process.
    """
    try:
        with ServiceClient(url, deadline_s=PROBE_TIMEOUT_S, attempts=1) as client:
            return client.version().model_dump()
    except ValueError:  # no address
        return {}
    except ServiceError as error:
        if error.cause == "refused":
            raise LaunchError(
                f"The environment service at {url} refuses this client ({str(error).rstrip('.')}): set BFCL_TOKEN "
                "here, or in .env, to the one that it was started with."
            ) from error
        return None if error.cause == "unreachable" else {}


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


def require_environments(urls: Sequence[str], names: Sequence[str], otherwise: str = FIX) -> None:
    """LaunchError if a service speaks another protocol or plays one of these with other data; otherwise: what to do."""
    for name in names:
        own = {"protocol": PROTOCOL, **get_environment(name).version()}
        for url in urls:
            there = _asked(url, methodcaller("version", name), f"cannot play {name}", otherwise).model_dump()
            for key, value in own.items():
                if there.get(key) != value:
                    raise LaunchError(
                        f"The environment service at {url} plays {name} with {key} {str(there.get(key))[:12]}, and "
                        f"here it is {str(value)[:12]}: {otherwise}."
                    )


def require_tasks(urls: Sequence[str], files: Sequence[str], otherwise: str = WITH_BFCL) -> None:
    """LaunchError if one of the services does not serve every task of these files; otherwise: what else can be done."""
    for file in files:
        wanted = {task.id for task in read_task_file(file)}
        for url in urls:
            missing = wanted - set(_asked(url, methodcaller("tasks", "synth"), "does not list its tasks", otherwise))
            if missing:
                raise LaunchError(
                    f"The environment service at {url} does not serve {len(missing)} tasks of {file} ({min(missing)} "
                    f"is one): {otherwise}."
                )


def require_service_for(recipe: Recipe, urls: Sequence[str], otherwise: str = FIX) -> dict[str, Any]:
    """The version of the services; LaunchError if they differ or cannot play the recipe; otherwise: what to do."""
    versions = {url: require_service(url) for url in urls}
    version = versions[urls[0]]
    for url, other in versions.items():
        if other != version:
            raise LaunchError(
                f"The services at {urls[0]} and {url} differ ({version} and {other}): run the same version of both, or "
                "remove one from env_service.env_url."
            )
    require_environments(urls, recipe.environments, otherwise)
    require_tasks(urls, recipe.task_files, otherwise)
    return version


def _asked(url: str, question: Callable[[ServiceClient], Any], failure: str, otherwise: str) -> Any:
    """A service's answer to a question that may make a worker import an environment; LaunchError without one."""
    try:
        with ServiceClient(url, deadline_s=IMPORT_TIMEOUT_S, attempts=1) as client:
            return question(client)
    except ServiceError as error:
        reason = str(error).rstrip(".")
        raise LaunchError(f"The environment service at {url} {failure} ({reason}): {otherwise}.") from error


def own_address(recipe: Recipe, url: str) -> tuple[str, str | None]:
    """The address for --with-bfcl: `url`, or a free port, with a warning, if no service there can serve the recipe."""
    try:
        answer = probe(url)
        if answer is None and is_free(url):
            return url, None
        if not answer:
            raise LaunchError(f"Something other than the environment service answers at {url}: {LEFT_ALONE}.")
        require_service_for(recipe, (url,), LEFT_ALONE)
    except LaunchError as error:
        if not is_loopback(urlsplit(url).hostname or ""):
            raise
        free = f"http://{LOOPBACK}:{free_port()}"
        return free, f"{error} The environment service starts at {free}."
    return url, None


class Service:
    """A service that this process starts, with these task files; one that runs at the address is used and stays."""

    def __init__(self, url: str, log: Path, task_files: Sequence[str] = ()):
        self.url = url.rstrip("/")
        self._log = log
        parts, variables = urlsplit(self.url), {}
        if task_files:
            # The script of BFCL_SCRIPT starts in another folder.
            variables["BFCL_TASK_FILES"] = ",".join(str(Path(file).resolve()) for file in task_files)
        command, cwd = COMMAND, HOME
        if script := os.environ.get("BFCL_SCRIPT"):
            command, cwd = ["bash", "-c", script], HOME / "env_service" / "launch_script"
        self._local = LocalService(log, parts.port or 80, parts.hostname or LOOPBACK, command, cwd, **variables)
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
        self._launch(exits.REFUSED)
        return True

    def _launch(self, code: int) -> None:
        try:
            self._local.start()
        except ServiceError as error:
            raise LaunchError(str(error), code) from error

    def ensure_running(self) -> str | None:
        """Restart our service if it has ended; returns a sentence about it, None while it runs.

        The rollouts rebuild their episodes. LaunchError (infrastructure) if it has ended too often.
        """
        ended = self._local.ended()
        if ended is None:
            return None
        if self._restarts == MAX_RESTARTS:
            again = f"It was started again {MAX_RESTARTS} times already"
            raise LaunchError(f"{ended} {again} (log: {self._log})", exits.INFRASTRUCTURE)
        self._restarts += 1
        self.stop()
        self._launch(exits.INFRASTRUCTURE)
        return f"{ended} Started again ({self._restarts} of {MAX_RESTARTS} times); its episodes are rebuilt."

    def stop(self) -> None:
        """Stop what start() started, and nothing else."""
        self._local.stop()
