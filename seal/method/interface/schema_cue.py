"""phi_schema(F): what the tools' public documents imply, said explicitly (paper, section 3.3)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from seal.method.diagnosis.constraints import constraints

COMPACT_LIMIT = 600
"""Hard cap of the compact rendering, in characters."""

_MORE = "..."


def _arguments(document: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    return document["parameters"].get("properties", {})


def _required(document: Mapping[str, Any]) -> Sequence[str]:
    return document["parameters"].get("required", ())


def arguments_line(document: Mapping[str, Any]) -> str:
    """A tool's arguments in one phrase: "source, destination; optional: mode", or "no arguments"."""
    required = list(_required(document))
    optional = [name for name in _arguments(document) if name not in required]
    phrase = ", ".join(required)
    if optional:
        phrase += ("; " if phrase else "") + "optional: " + ", ".join(optional)
    return phrase or "no arguments"


def full_schema(tools: Sequence[Mapping[str, Any]], cues: Collection[str]) -> list[str]:
    """One line per tool with its arguments, and their types and constraints when those cues are on."""
    lines = []
    for document in tools:
        required = _required(document)
        parts = []
        for name, schema in _arguments(document).items():
            notes = [_type(schema)] if "schema_types" in cues else []
            if "schema_values" in cues:
                notes += [constraint.text for constraint in constraints(schema)]
            must = "schema_required" in cues and name in required
            if must or notes:
                parts.append(name + (" (required)" if must else "") + (f" [{'; '.join(notes)}]" if notes else ""))
        if parts:
            lines.append(f"- {document['name']}: " + ", ".join(parts))
    return lines


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "any")
    if kind == "array" and "type" in schema.get("items", {}):
        return f"array of {schema['items']['type']}"
    if kind == "dict" and schema.get("properties"):
        return "dict of " + ", ".join(f"{name} {_type(child)}" for name, child in schema["properties"].items())
    return kind


def required_entry(document: Mapping[str, Any]) -> str:
    """A tool and its required arguments, as the compact rendering lists them: "cp source destination"."""
    return " ".join((document["name"], *_required(document)))


def compact_schema(tools: Sequence[Mapping[str, Any]], cues: Collection[str]) -> str:
    """ "Required: cp source destination; ..." of tools with required arguments, at most 600 characters."""
    if "schema_required" not in cues:
        return ""
    text = "Required: "
    for number, document in enumerate(d for d in tools if _required(d)):
        entry = ("; " if number else "") + required_entry(document)
        if len(text) + len(entry) + len(_MORE) > COMPACT_LIMIT:
            return text + _MORE
        text += entry
    return text if not text.endswith(": ") else ""


def schema_text(tools: Sequence[Mapping[str, Any]]) -> str:
    """Everything that any cue can say of these tools from their documents, constraints by argument too."""
    every = ("schema_required", "schema_types", "schema_values")
    lines = [*full_schema(tools, every), compact_schema(tools, every), *map(arguments_line, tools)]
    for document in tools:
        lines += _constraint_lines(_arguments(document))
    return "\n".join(lines)


def _constraint_lines(arguments: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = [f"{name} {constraint.text}" for name, node in arguments.items() for constraint in constraints(node)]
    for node in arguments.values():
        lines += _constraint_lines(node.get("properties", {}))
    return lines
