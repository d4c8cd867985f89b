"""A model that a recipe names by its id on the Hugging Face hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import requests
from huggingface_hub import constants, try_to_load_from_cache

from seal.launch.errors import LaunchError

KEY = "actor_rollout_ref.model.path"
DEADLINE_S = 10


def hub_configuration(model: str) -> dict[str, Any]:
    """A model's config.json from the cache, else from the hub; LaunchError where neither has it."""
    cached = try_to_load_from_cache(model, "config.json")
    if isinstance(cached, str):
        return json.loads(Path(cached).read_text(encoding="utf-8"))
    if constants.HF_HUB_OFFLINE:
        raise LaunchError(f"{KEY}={model} is not in the cache and HF_HUB_OFFLINE is set: unset it, or {_mend()}.")
    try:
        answer = requests.get(f"{constants.ENDPOINT}/{model}/resolve/main/config.json", timeout=DEADLINE_S)
    except requests.RequestException as error:
        raise LaunchError(
            f"{KEY}={model} is not in the cache and {constants.ENDPOINT} does not answer: {_mend()}, or another "
            "endpoint with HF_ENDPOINT."
        ) from error
    if answer.status_code in (401, 403):
        # A gated model answers to a token alone, which the engines read themselves.
        return {}
    if not answer.ok:
        raise LaunchError(
            f"{KEY}={model} is not in the cache and {constants.ENDPOINT} answers {answer.status_code}: correct it, or "
            f"{_mend()}."
        )
    return answer.json()


def _mend() -> str:
    return f"name a folder that holds it with {KEY}=/path"
