"""phi_err(o, H): recovery-oriented feedback on a failed action (paper, section 3.3)."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Any

from seal.method.diagnosis.categories import environment_of
from seal.method.diagnosis.evidence import ActionEvidence, CallEvidence
from seal.method.interface.cues import Omega
from seal.method.interface.errors import error_class
from seal.method.interface.observation import Tools
from seal.method.interface.schema_cue import arguments_line, required, required_entry
from seal.method.interface.wording import PromptWording, fill, placeholders, wording
from seal.settings.data import BENCHMARK
from seal.system.text import clipped

_ORDER = ("feedback_error", "feedback_history", "feedback_tools", "feedback_answer")
_MAX_DETAILS = 6
_COMPACT_DETAIL = 80
_NAME = 64
_NEAREST = 5


def observe_feedback(
    content: str,
    failure: ActionEvidence,
    history: Sequence[ActionEvidence],
    tools: Tools,
    omega: Omega,
    category: str,
    mode: PromptWording,
) -> str:
    """The answer to a failed action with phi_err(o, H) added at its end.

    content: the observation as the benchmark sends it. failure: the policy's message with its errors. history: the
    episode's earlier messages, oldest first. Unchanged when the action did not fail or no feedback cue is on.
    """
    cues = omega.of_kind("feedback", category)
    if not cues or not failure.failed:
        return content
    values = {
        **mode.values(),
        "problems": _problems(failure, tools, category, mode),
        "history": _history(failure, history, mode),
        "tools": _tool_names(failure, tools, mode.compact),
    }
    ranked = sorted(cues, key=lambda cue: _ORDER.index(cue.name) if cue.name in _ORDER else len(_ORDER))
    templates = [cue.wording(mode.compact) for cue in ranked]
    texts = [fill(text, values) for text in templates if text and all(values.get(key) for key in placeholders(text))]
    return "\n".join((content, " ".join(texts))) if texts else content


def _said(section: str, kind: str, mode: PromptWording, **values: str) -> str:
    return fill(wording()[section][kind][mode.size], {**mode.values(), **values})


def _problems(failure: ActionEvidence, tools: Tools, category: str, mode: PromptWording) -> str:
    documents = {document["name"]: document for document in tools}
    found = [_said("errors", "parse", mode)] if failure.refusals else []
    found += [_call_problem(call, documents.get(call.name), category, mode) for call in failure.calls if call.failed]
    unique = list(dict.fromkeys(found))
    return " ".join(unique[:1] if mode.compact else unique[:_MAX_DETAILS])


def _call_problem(call: CallEvidence, document: Mapping[str, Any] | None, category: str, mode: PromptWording) -> str:
    kind, detail = "execution", ""
    if call.unavailable or document is None:
        kind = "unavailable"
    elif call.violations:
        kind, detail = _violated(call, document, mode.compact)
    elif call.error == "signature":
        kind, detail = "signature", arguments_line(document)
    elif call.error == "deadline":
        kind = "deadline"
    elif environment_of(category) == BENCHMARK:  # the classes know its messages; elsewhere the words can mean anything
        kind = error_class(call.name, call.result, call.arguments)
    return _said("errors", kind, mode, name=call.name[:_NAME], detail=detail)


def _violated(call: CallEvidence, document: Mapping[str, Any], compact: bool) -> tuple[str, str]:
    # The compact text repeats the tool's entry of the schema cue, so that a small policy reads both in the same way.
    missing = [violation.path for violation in call.violations if violation.kind == "missing"]
    others = [violation.message for violation in call.violations if violation.kind != "missing"]
    if compact:
        others = [clipped(message, _COMPACT_DETAIL) for message in others[:1]]
    if compact and missing and set(missing) <= set(required(document)):
        return "required", "; ".join((required_entry(document), *others))
    parts = ["missing " + ", ".join(missing)] if missing else []
    return "schema", "; ".join(parts + others[: _MAX_DETAILS - len(parts)])


def _history(failure: ActionEvidence, history: Sequence[ActionEvidence], mode: PromptWording) -> str:
    earlier = [_outcome(call) for action in history for call in action.calls if call.failed]
    again = [call.name for call in failure.calls if call.failed and _outcome(call) in earlier]
    row = 1 + len([*takewhile(lambda action: action.failed, reversed(history))])
    texts = [_said("history", "repeated", mode, name=again[0][:_NAME])] if again else []
    if row > 1 and not (again and mode.compact):
        texts.append(_said("history", "row", mode, count=str(row)))
    return " ".join(texts)


def _outcome(call: CallEvidence) -> tuple[str, Mapping[str, Any], str]:
    return call.name, call.arguments, call.result


def _tool_names(failure: ActionEvidence, tools: Tools, compact: bool) -> str:
    asked = [call.name for call in failure.calls if call.unavailable]
    if not asked:
        return ""
    names = [document["name"] for document in tools]
    if not compact:
        return ", ".join(names)
    # A small context has no room for the whole list, which its system text holds already.
    nearest = sorted(names, key=lambda name: (-SequenceMatcher(None, name, asked[0]).ratio(), name))
    return " ".join(nearest[:_NEAREST])
