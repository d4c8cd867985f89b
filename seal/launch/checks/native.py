"""The model's own tool format, before a run in the prompt mode `native`: its template and verl's parser must agree."""

import asyncio
from functools import cache
from typing import Any

from jinja2.exceptions import TemplateError
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from env_service.environments.kit.tool_calls import AGENT_FORMATS, NATIVE, entry
from seal.launch.checks.model import MODEL, configuration
from seal.launch.recipe import Recipe
from seal.rollout.native import PARSERS, NativeFormat
from seal.system.errors import LaunchError
from seal.system.text import first_line

PARSER = "actor_rollout_ref.rollout.multi_turn.format"
ARGUMENTS = {"text": "007", "count": 2, "loud": False, "to": ["a", "b"]}
KINDS = ("string", "integer", "boolean", "array")
SCHEMAS = {name: {"type": kind, "description": name} for name, kind in zip(ARGUMENTS, KINDS, strict=True)}
SCHEMAS["to"]["items"] = {"type": "string"}
PARAMETERS = {"type": "object", "properties": SCHEMAS, "required": ["text"]}
TOOL = {"type": "function", "function": {"name": "probe_tool", "description": "Say.", "parameters": PARAMETERS}}
THOUGHT = "<think>\na thought\n</think>"
CALL = entry("probe_tool", ARGUMENTS, "functions.probe_tool:0")
DIALOGUE: list[dict[str, Any]] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "u"},
    {
        "role": "assistant",
        "content": f"{THOUGHT}\n\n",
        "tool_calls": [CALL | {"function": CALL["function"] | {"arguments": ARGUMENTS}}],
    },
    {"role": "tool", "tool_call_id": CALL["id"], "name": "probe_tool", "content": "r"},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "v"},
]
"""It has what templates treat differently: a number as text, a list, a thought, a result, a second user turn."""


def check_native(recipe: Recipe) -> tuple[str, ...]:
    """Raise LaunchError for a template or parser that training cannot use; return what a user should know."""
    path, parser = recipe.config.actor_rollout_ref.model.path, recipe.config.actor_rollout_ref.rollout.multi_turn.format
    if parser not in PARSERS:
        raise LaunchError(f"{PARSER}={parser} is not a tool parser of verl: set it to one of {', '.join(PARSERS)}.")
    model = configuration(recipe)
    try:
        folder = str(recipe.model_folder) if recipe.model_folder.is_dir() else path
        tokenizer = _tokenizer(folder, bool(recipe.config.actor_rollout_ref.model.trust_remote_code))
    except (OSError, ValueError) as error:
        raise LaunchError(f"{MODEL}={path}: its tokenizer cannot be loaded: {first_line(str(error))}") from error
    template = OmegaConf.select(recipe.config, "actor_rollout_ref.model.custom_chat_template")
    tokenizer.chat_template = template or tokenizer.chat_template
    kwargs = OmegaConf.to_container(recipe.config.data).get("apply_chat_template_kwargs") or {}
    kind = model.get("model_type")
    builder = create_continuous_token_builder(tokenizer, hf_model_type=kind, chat_template_kwargs=kwargs)

    def added(end: int) -> list[int]:
        previous, ids = DIALOGUE[: end - 1], prompts[end - 2]
        return builder.merge_context_tokens(previous, DIALOGUE[:end], ids, tools=[TOOL]).token_ids[len(ids) :]

    try:
        prompts = {end: builder.build_initial_tokens(DIALOGUE[:end], tools=[TOOL]) for end in (2, 4, 6)}
        context, problem = {end: added(end) for end in (4, 6)}, ""
        if "probe_tool" not in tokenizer.decode(prompts[2]):
            problem = "does not show tools"
    except (ValueError, TypeError, TemplateError) as error:
        problem = f"cannot hold a dialogue with tools ({first_line(str(error)).rstrip('.')})"
    if problem:
        raise LaunchError(
            f"env_service.prompt_mode=native: the chat template of {path} {problem}: name one that does in "
            "actor_rollout_ref.model.custom_chat_template, or train in a text mode, as env_service.prompt_mode=hermes."
        )
    said = prompts[4][len(prompts[2]) :]
    if not _reads(parser, tokenizer, said):
        others = " or ".join(name for name in PARSERS if _reads(name, tokenizer, said))
        fix = f"set it to {others}" if others else "none of verl's does: train with env_service.prompt_mode=hermes"
        raise LaunchError(f"{PARSER}={parser} does not read the calls that the chat template of {path} writes: {fix}.")
    kept = all(
        prompts[end][: len(prompts[end - 2])] == prompts[end - 2]
        and prompts[end][len(prompts[end]) - len(context[end]) :] == context[end]
        for end in (4, 6)
    )
    if kept:
        return ()
    return (
        f"The chat template of {path} rewrites earlier messages as a dialogue continues (Qwen3's drops thoughts). "
        "Training keeps them as sampled; a server that evaluates the model shows them as the template does.",
    )


@cache
def _tokenizer(name: str, trusted: bool) -> Any:
    return AutoTokenizer.from_pretrained(name, trust_remote_code=trusted)


def _reads(parser: str, tokenizer: Any, said: list[int]) -> bool:
    """Whether a parser finds the probe's call, as it was meant, in a message and what follows it."""
    told = tokenizer.decode(said).replace(THOUGHT, "")  # Gemma's template writes a text after the calls
    text = asyncio.run(NativeFormat(parser, tokenizer).read(told, "", [TOOL]))
    return AGENT_FORMATS[NATIVE].parse(text).calls == ((TOOL["function"]["name"], ARGUMENTS),)
