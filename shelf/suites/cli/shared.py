"""Code shared by the commands of `seal evaluate`: options by heading, and refusals in one sentence."""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from seal.cli.commands import option, refusing

FAILED = 1
"""The exit code if attempts have no verdict for technical reasons."""

ENVS = "Folder of the tools' environments (default: SEAL_ENVS, or ~/.cache/seal/envs)."

of_model = partial(option, panel="The model")
of_user = partial(option, panel="The simulated user")
of_tasks = partial(option, panel="The tasks")
of_how = partial(option, panel="How")

BaseUrl = Annotated[str | None, of_model("An OpenAI-compatible endpoint (http://host:port/v1).")]
Model = Annotated[str | None, of_model("The model's name at the endpoint.")]
Checkpoint = Annotated[Path | None, of_model("An HF folder, served here by vLLM.")]
ServeArgs = Annotated[str, of_model("More options of vllm serve, as one string.")]
Limit = Annotated[int | None, of_tasks("At most this many items of each category.", least=1)]
Concurrency = Annotated[int, of_how("Requests or dialogues at once.", least=1)]
Rounds = Annotated[int, of_how("Runs of the tool, for what failed technically.", least=1)]
Wait = Annotated[float, of_how("Seconds to wait for an endpoint that is down, before each run.")]
Stall = Annotated[float, of_how("Seconds without any result after which a run is stopped.")]
Deadline = Annotated[float, of_how("Seconds for one run of the tool.")]
Envs = Annotated[Path | None, of_how(ENVS, "DIR")]
Out = Annotated[Path | None, of_how("Results (default: experiments/SUITE_MODEL).")]


def default_folder(suite: str, name: str) -> Path:
    """Where results are written without --out."""
    safe = re.sub(r"[^\w.-]+", "_", name)
    return Path("experiments") / f"{suite}_{safe}"


def extra_fields(text: str) -> dict[str, Any]:
    """The fields of --extra; ValueError if they are not a JSON object."""
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise ValueError(f'--extra {text!r} is no JSON object, as {{"enable_thinking": false}} is.')
    return fields


@contextmanager
def one_sentence(command: str) -> Iterator[None]:
    """Turn errors that a user can fix into one sentence and exit code 2."""
    from env_service.client import ServiceError
    from shelf.suites.answers import EndpointRefused

    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    for name in ("shelf", "seal.rollout.user"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with refusing(command, EndpointRefused, ServiceError):
        yield
