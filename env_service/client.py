"""A client of the environment service for other programs: adapters, notebooks, evaluation harnesses.

Rollouts of this project use `seal.rollout.env_client`, which retries and rebuilds
episodes. This one needs only the base package, blocks, and may be shared by threads.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from env_service import answers, protocol

DEFAULT_URL = "http://127.0.0.1:8082"
"""Where `seal serve` listens by default."""
URL_VARIABLE = "SEAL_URL"
"""The environment variable that names another address."""
DEADLINE_S = 60.0

_CONNECTIONS = 256
_RECONNECTS = 2

Answer = TypeVar("Answer", bound=BaseModel)


class ServiceError(RuntimeError):
    """The service did not do what it was asked; the message says why and what to change.

    cause: unreachable (nothing answers in time), foreign (something else answers),
    version (another protocol), refused (the request is wrong), lost (the episode is not
    open), busy (no room for another episode), failed (an error of the service).
    """

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class ServiceClient:
    """The verbs of one service; every call ends within the deadline.

    url: the service's address; by default SEAL_URL, else where `seal serve` listens.
    env_type: the environment to play. token: by default BFCL_TOKEN. deadline_s: seconds
    for one request.
    """

    def __init__(
        self,
        url: str | None = None,
        env_type: str = "bfcl",
        token: str | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Connect with the first request; ValueError if `url` is not an HTTP address."""
        self.url = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"{self.url!r} is not the address of a service: write http://HOST:PORT.")
        self.env_type = env_type
        token = token or os.environ.get("BFCL_TOKEN")
        self._deadline_s = deadline_s
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=deadline_s,
            trust_env=False,
            transport=httpx.HTTPTransport(
                retries=_RECONNECTS, limits=httpx.Limits(max_connections=_CONNECTIONS, keepalive_expiry=30.0)
            ),
        )
        self._checked = False
        self._checking = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; open episodes stay open until the service expires them."""
        self._http.close()

    def version(self) -> protocol.VersionAnswer:
        """What results depend on; ServiceError if no service of this protocol answers."""
        answer = self._answer(protocol.VersionAnswer, self._send("GET", "/version"))
        if answer.protocol != protocol.PROTOCOL:
            raise ServiceError(
                "version",
                f"The environment service at {self.url} speaks protocol {answer.protocol}, and this package speaks "
                f"{protocol.PROTOCOL}: install the same version of seal-rl on both sides.",
            )
        return answer

    def tasks(self, split: str) -> list[str]:
        """The ids of a split's tasks, in the service's order; ServiceError lists the splits if it is unknown."""
        request = protocol.ProfileRequest(env_type=self.env_type, params={"split": split})
        return self._post("get_env_profile", request, protocol.ProfileAnswer).data

    def create(self, task_id: str, instance_id: str, params: Mapping[str, Any] | None = None) -> answers.Opening:
        """Open an episode under a name of the caller's; its first messages."""
        request = protocol.CreateRequest(
            env_type=self.env_type, task_id=task_id, instance_id=instance_id, params=dict(params or {})
        )
        return self._post("create", request, protocol.CreateAnswer).data

    def step(self, instance_id: str, content: str, truncated: bool = False) -> answers.Step:
        """Send one assistant message; truncated: a length limit cut it."""
        message = protocol.AssistantMessage(role="assistant", content=content)
        request = protocol.StepRequest(instance_id=instance_id, messages=message, truncated=truncated)
        return self._post("step", request, protocol.StepAnswer).data

    def evaluate(self, instance_id: str, stop: str | None = None) -> dict[str, Any]:
        """The verdict, figures and labels of an episode, which stays as it is.

        stop: `length` or `step_limit` if the caller ends an episode here that the service would continue.
        """
        params = {"sparse": False} | ({"stop": stop} if stop else {})
        request = protocol.EvaluateRequest(instance_id=instance_id, params=params)
        report = self._post("evaluate", request, protocol.EvaluateAnswer).data
        return report if isinstance(report, dict) else {"valid": bool(report)}

    def tools(self, instance_id: str) -> str:
        """The tools that are available now, as text."""
        return self._post("get_info", protocol.InstanceRequest(instance_id=instance_id), protocol.InfoAnswer).data

    def release(self, instance_id: str) -> bool:
        """Close an episode; False if it was not open."""
        request = protocol.InstanceRequest(instance_id=instance_id)
        return self._post("release", request, protocol.ReleaseAnswer).success

    def _post(self, verb: str, request: BaseModel, answer: type[Answer]) -> Answer:
        self._check()
        return self._answer(answer, self._send("POST", f"/{verb}", request.model_dump_json(exclude_unset=True)))

    def _check(self) -> None:
        """Ask for the version before the first request."""
        with self._checking:
            if not self._checked:
                self.version()
                self._checked = True

    def _send(self, method: str, path: str, body: str | None = None) -> httpx.Response:
        headers = {"Content-Type": "application/json"} if body else {}
        try:
            return self._http.request(method, path, content=body, headers=headers)
        except httpx.TimeoutException as error:
            raise ServiceError(
                "unreachable",
                f"The environment service at {self.url} did not answer within {self._deadline_s:g} s: see its log, or "
                "raise the deadline.",
            ) from error
        except httpx.TransportError as error:
            raise ServiceError(
                "unreachable",
                f"No environment service answers at {self.url}: start one with `seal serve`, or name its address in "
                f"{URL_VARIABLE}.",
            ) from error

    def _answer(self, model: type[Answer], response: httpx.Response) -> Answer:
        if response.is_error:
            raise self._refusal(response)
        try:
            # Not model_validate_json: it refuses values nested deeper than about 200 levels, which a policy can write.
            return model.model_validate(response.json())
        except (ValueError, RecursionError) as error:
            raise self._foreign() from error

    def _refusal(self, response: httpx.Response) -> ServiceError:
        try:
            problem = protocol.Problem.model_validate_json(response.content)
        except ValidationError:
            return self._foreign()
        if response.is_server_error:
            return ServiceError("failed", f"The environment service at {self.url} failed: {problem.detail}")
        if response.status_code == httpx.codes.NOT_FOUND:
            return self._foreign()
        cause = "lost" if problem.code == protocol.NO_EPISODE else "refused"
        return ServiceError("busy" if response.status_code == 429 else cause, problem.detail)

    def _foreign(self) -> ServiceError:
        return ServiceError(
            "foreign",
            f"Something other than the environment service answers at {self.url}: name the service's address in "
            f"{URL_VARIABLE}.",
        )


def choose(tasks: Sequence[str], split: str, index: int) -> str:
    """The task of a split at an index; IndexError in one sentence outside it."""
    if not tasks:
        raise IndexError(f"split {split!r} has no tasks.")
    if not 0 <= index < len(tasks):
        raise IndexError(f"index {index} is outside split {split!r}, which has the tasks 0 to {len(tasks) - 1}.")
    return tasks[index]
