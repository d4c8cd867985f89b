"""Result rows of the official BFCL tool: the calls that the official evaluation reads from them."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.handlers import Decoded, decode, decoder, executed, handlers
from seal.records.benchmark import parse_task_id
from shelf.lab.foreign.rollout import Action, Call, Turn

Step = str | Sequence[Mapping[str, Any] | str]
TEXT_MODES = ("bfcl_qwen_fc", "toolace_official_prompt")
"""Prompt modes that read calls from text."""
_OTHER_FORMS = re.compile(
    r"\A\s*(?:\{|\[\s*\{|```)|<tool_call>\s*\[|<function_call>|<TOOLCALL>|<\|tool_call_start\|>|<start_function_call>"
)
"""Texts from which a handler reads calls that the prompt modes do not."""


def read_result(result: Sequence[Sequence[Step]], log: Any, path: Path, task_id: str) -> tuple[list[Turn], str]:
    """The turns of a row: by its log, else by the handler that its folder names, else in forms that any handler reads.

    Then the prompt mode that reads its texts as its handler did, "" if none does. ValueError, in a sentence, if its
    calls cannot be known.
    """
    parse_task_id(task_id)
    turns = [[_action(step) for step in turn] for turn in result]
    if (found := _logged(log, result)) is None:
        model = next((name for name in reversed(path.parts[:-1]) if name in handlers()), None)
        if model is None:
            _require_known(result)
            return [Turn("", actions) for actions in turns], ""
        by = decoder(model)
        found = [[decode(step, by) for step in turn] for turn in result]
    for number, (steps, expected) in enumerate(zip(found, load_tasks()[task_id].reference, strict=False)):
        if expected and any(step.ran for step in steps) and not any(step.calls for step in steps):
            raise ValueError(f"the official tool runs text that is not a call in turn {number}: its result is unknown")
    if mode := _mode(result, found):
        return [Turn("", actions) for actions in turns], mode
    pairs = zip(turns, found, strict=True)
    return [Turn("", [_known(*each) for each in zip(*pair, strict=True)]) for pair in pairs], ""


def _action(step: Step) -> Action:
    """A step as a function-calling handler reads it: if it cannot read one call, it drops the whole message."""
    if isinstance(step, str):
        return Action(step)
    named = [call.items() if isinstance(call, Mapping) else [(None, call)] for call in step]
    return Action("", tuple(Call(name=name, arguments=written) for each in named for name, written in each), whole=True)


def _known(action: Action, decoded: Decoded) -> Action:
    """The step with the calls that were decoded."""
    heard = [call for call in action.heard({}) if not call.refused]
    if [(call.name, call.arguments) for call in heard] == list(decoded.calls):
        return action
    for name, arguments in decoded.calls:
        if json.loads(json.dumps(arguments)) != arguments:
            raise ValueError(f"the arguments of {name} are not JSON: {arguments!r:.80}")
    if not decoded.calls and not action.text:
        raise ValueError(f"the official handler reads no call in {[call.arguments for call in action.calls]!r:.80}")
    calls = tuple(Call(name=name, arguments=arguments) for name, arguments in decoded.calls)
    return Action("" if calls else action.text, calls, whole=True)


def _logged(log: Any, result: Sequence[Sequence[Step]]) -> list[list[Decoded]] | None:
    """What the handler decoded from each step, according to the row's log; None if a step is not in it."""
    turns = [turn for turn in log if isinstance(turn, Mapping)] if isinstance(log, list) else []
    if len(turns) != len(result):
        return None
    found = [
        [_entry(turn.get(f"step_{at}")) for at in range(len(steps))] for turn, steps in zip(turns, result, strict=True)
    ]
    if any(step is None for turn in found for step in turn):
        return None
    return [[executed(step or ()) for step in turn] for turn in found]


def _entry(log: Any) -> list[Any] | None:
    """The decoded calls in the log of a step, [] after an error; None if the log does not say."""
    for entry in log if isinstance(log, list) else ():
        if isinstance(entry, Mapping) and entry.get("role") == "handler_log":
            decoded = entry.get("model_response_decoded", [] if "error" in entry else None)
            if isinstance(decoded, list):
                return decoded
    return None


def _mode(result: Sequence[Sequence[Step]], found: Sequence[Sequence[Decoded]]) -> str:
    """The prompt mode that reads from every text what was decoded; "" if none does."""
    pairs = [pair for turn in zip(result, found, strict=True) for pair in zip(*turn, strict=True)]
    if not pairs or not all(isinstance(step, str) for step, _ in pairs):
        return ""
    forms = [get_format(mode) for mode in TEXT_MODES]
    return next((form.name for form in forms if all(form.parse(step).calls == own.calls for step, own in pairs)), "")


def _require_known(result: Sequence[Sequence[Step]]) -> None:
    """ValueError if the calls of a row whose handler is unknown may be in a form that only some handlers read."""
    why = "no folder names its model: put it under result/MODEL, a model of the official tool"
    steps = [step for turn in result for step in turn]
    lists = [step for step in steps if not isinstance(step, str)]
    if any(isinstance(call, Mapping) and len(call) != 1 for step in lists for call in step):
        raise ValueError(f"its calls are not written as {{NAME: ARGUMENTS}}, and {why}")
    texts = [] if lists else [step.split("</think>")[-1] for step in steps if isinstance(step, str)]
    calls = {mode: [bool(get_format(mode).parse(text).calls) for text in texts] for mode in TEXT_MODES}
    mode = max(TEXT_MODES, key=lambda mode: sum(calls[mode]))
    for text, own, any_mode in zip(texts, calls[mode], map(any, zip(*calls.values(), strict=True)), strict=True):
        if not own and (any_mode or _OTHER_FORMS.search(text)):
            raise ValueError(f"{text[:60]!r} may hold calls in a form of its handler's, and {why}")
