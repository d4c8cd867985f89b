"""The model that a recipe names: whether it is there, and whether lengths and parallel sizes fit it.

Its folder is read, or the hub is asked for its configuration; no weights are loaded.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from httpx import InvalidURL
from huggingface_hub import constants, hf_hub_download
from huggingface_hub import logging as hub_logging
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError
from huggingface_hub.utils import disable_progress_bars

from seal.launch.checks.plan import budgets
from seal.launch.recipe import Recipe, count
from seal.system.errors import LaunchError
from seal.system.paths import HOME

MODEL = "actor_rollout_ref.model.path"
HUB_DEADLINE_S = 10
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
WEIGHTS = ("*.safetensors", "*.bin")
TOKENIZER = ("tokeniz*", "*vocab*", "*.model", "*.tiktoken", "tekken.json")


def check_model(recipe: Recipe) -> None:
    """LaunchError if the model or its adapter is not there, or does not fit the recipe."""
    config = recipe.config
    adapter = config.actor_rollout_ref.model.lora_adapter_path
    if adapter is not None and not (HOME / adapter).is_dir():
        raise LaunchError(f"actor_rollout_ref.model.lora_adapter_path={adapter} does not exist: name its folder.")
    model = configuration(recipe)
    text = model.get("text_config", model)
    positions = text.get("max_position_embeddings", text.get("n_positions"))
    heads = text.get("num_attention_heads", text.get("n_head"))
    *_, length = budgets(config)
    if positions and length > positions:
        raise LaunchError(
            f"actor_rollout_ref.rollout.max_model_len={length} is more than the {positions} positions of "
            "actor_rollout_ref.model.path: lower it, with data.max_prompt_length and data.max_response_length."
        )
    for key in ("rollout.tensor_model_parallel_size", "actor.ulysses_sequence_parallel_size"):
        parts = count(config, f"actor_rollout_ref.{key}")
        if heads and heads % parts:
            raise LaunchError(
                f"actor_rollout_ref.{key}={parts} does not divide the {heads} attention heads of "
                "actor_rollout_ref.model.path: choose a divisor."
            )
    local = recipe.model_folder
    for part, kinds in {"weights": WEIGHTS, "tokenizer": TOKENIZER}.items():
        if local.is_dir() and not any(next(local.glob(kind), None) for kind in kinds):
            raise LaunchError(f"{MODEL}={local} holds no {part}: `seal export` makes a checkpoint a model's folder.")


def configuration(recipe: Recipe) -> dict[str, Any]:
    """The config.json of a recipe's model, from its folder, the hub or the cache; LaunchError if none gives it."""
    path, local = recipe.config.actor_rollout_ref.model.path, recipe.model_folder
    if local.is_dir():
        if not (local / "config.json").is_file():
            raise LaunchError(f"{MODEL}={path} holds no config.json: name a Hugging Face folder.")
        try:
            return json.loads((local / "config.json").read_text(encoding="utf-8"))
        except ValueError as error:
            raise LaunchError(f"{MODEL}={path}: its config.json is cut or no JSON ({error}).") from error
    if not HUB_ID.fullmatch(path) or (HOME / path.split("/")[0]).is_dir():
        raise LaunchError(f"{MODEL}={path} does not exist: name a folder with a model.")
    if recipe.settings.process_env.get("HF_HUB_OFFLINE", "").upper() in constants.ENV_VARS_TRUE_VALUES:
        raise LaunchError(
            f"{MODEL}={path} does not exist and this recipe works offline: name a folder with a model, or set "
            "seal.process_env.HF_HUB_OFFLINE=0 to download it."
        )
    return _hub_configuration(path, recipe.settings.process_env)


def _hub_configuration(model: str, own: Mapping[str, str]) -> dict[str, Any]:
    """The config.json of a model on the hub, or from the cache; LaunchError if neither gives it. own: `process_env`."""
    folder = f"name a folder that holds it with {MODEL}=/path"
    hub, home = own.get("HF_ENDPOINT") or constants.ENDPOINT, own.get("HF_HOME")
    place = {"endpoint": hub, "cache_dir": own.get("HF_HUB_CACHE") or (f"{home}/hub" if home else None)}
    hub_logging.set_verbosity_error()  # hides its attempts; our sentence reports the last one
    disable_progress_bars()
    try:
        path = hf_hub_download(model, "config.json", etag_timeout=HUB_DEADLINE_S, token=own.get("HF_TOKEN"), **place)
    except GatedRepoError as error:
        raise LaunchError(
            f"{MODEL}={model} is gated: accept its terms at {hub}/{model} and set HF_TOKEN (or run `hf auth login`), "
            f"or {folder}."
        ) from error
    except LocalEntryNotFoundError as error:
        reason = f"{hub} does not answer: {folder}, or another endpoint with HF_ENDPOINT"
        if constants.HF_HUB_OFFLINE:
            reason = f"HF_HUB_OFFLINE is set: unset it, or {folder}"
        raise LaunchError(f"{MODEL}={model} is not in the cache and {reason}.") from error
    except (ImportError, ValueError, InvalidURL) as error:
        raise LaunchError(
            f"{MODEL}={model} is sought on the hub through the proxy that the environment names, which cannot be used "
            f"({error}): correct ALL_PROXY, HTTPS_PROXY or NO_PROXY, or {folder}."
        ) from error
    except (HfHubHTTPError, EntryNotFoundError) as error:
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else "without one"
        raise LaunchError(
            f"{MODEL}={model} is not in the cache and {hub} answers {status} for its config.json: correct the name, "
            f"set HF_TOKEN if it is private, or {folder}."
        ) from error
    return json.loads(Path(path).read_text(encoding="utf-8"))
