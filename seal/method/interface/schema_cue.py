"""phi_schema(F): what the tools' public documents imply, said explicitly (paper, section 3.3)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from seal.method.diagnosis.constraints import constraints
from seal.method.diagnosis.schema import written

COMPACT_LIMIT = 600
"""Hard cap of the compact rendering, in characters."""

_MORE = "..."


def arguments_of(node: Any) -> Mapping[str, Mapping[str, Any]]:
    """The arguments that a document's `parameters`, or an object among them, lists, with their schemas."""
    listed = node.get("properties") if isinstance(node, Mapping) else None
    named = listed.items() if isinstance(listed, Mapping) else ()
    return {name: child if isinstance(child, Mapping) else {} for name, child in named}


def required(document: Mapping[str, Any]) -> Sequence[str]:
    """The names of a tool's required arguments."""
    parameters = document.get("parameters")
    listed = parameters.get("required") if isinstance(parameters, Mapping) else None
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list | tuple) else ()


def _values(document: Mapping[str, Any], node: Mapping[str, Any]) -> tuple[str, ...]:
    parameters = document["parameters"]
    return constraints(node, isinstance(parameters, Mapping) and parameters.get("type") == "dict")


def arguments_line(document: Mapping[str, Any]) -> str:
    """A tool's arguments in one phrase: "source, destination; optional: mode", or "no arguments"."""
    needed = required(document)
    optional = [name for name in arguments_of(document["parameters"]) if name not in needed]
    phrase = ", ".join(needed)
    if optional:
        phrase += ("; " if phrase else "") + "optional: " + ", ".join(optional)
    return phrase or ("no arguments" if lists_all(document["parameters"]) else "what its document says")


def lists_all(parameters: Any) -> bool:
    """Whether a document's `properties` list all arguments that the tool takes."""
    others = ("additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf")
    return isinstance(parameters, Mapping) and "properties" in parameters and not any(map(parameters.get, others))


def full_schema(tools: Sequence[Mapping[str, Any]], cues: Collection[str]) -> list[str]:
    """One line per tool with its arguments, and their types and constraints when those cues are on."""
    lines = []
    for document in tools:
        parts = []
        for name, schema in arguments_of(document["parameters"]).items():
            notes = [kind] if "schema_types" in cues and (kind := _type(schema)) else []
            if "schema_values" in cues:
                notes += _values(document, schema)
            must = "schema_required" in cues and name in required(document)
            if must or notes:
                parts.append(name + (" (required)" if must else "") + (f" [{'; '.join(notes)}]" if notes else ""))
        if parts:
            lines.append(f"- {document['name']}: " + ", ".join(parts))
    return lines


def _type(schema: Mapping[str, Any]) -> str:
    """The type that a schema names, with the types inside it; "" if it names none."""
    kind, items = schema.get("type"), schema.get("items")
    if kind == "array" and isinstance(items, Mapping) and (inner := _type({"type": items.get("type")})):
        return f"array of {inner}"
    if kind == "dict" and (listed := arguments_of(schema)):
        return "dict of " + ", ".join(f"{name} {_type(child)}" for name, child in listed.items())
    kinds = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else ()
    return " or ".join([*map(written, kinds), *(["null"] if kinds and schema.get("nullable") is True else [])])


def required_entry(document: Mapping[str, Any]) -> str:
    """A tool and its required arguments, as the compact rendering lists them: "cp source destination"."""
    return " ".join((document["name"], *required(document)))


def compact_schema(tools: Sequence[Mapping[str, Any]], cues: Collection[str]) -> str:
    """ "Required: cp source destination; ..." of tools with required arguments, at most 600 characters."""
    if "schema_required" not in cues:
        return ""
    text = "Required: "
    for number, document in enumerate(d for d in tools if required(d)):
        entry = ("; " if number else "") + required_entry(document)
        if len(text) + len(entry) + len(_MORE) > COMPACT_LIMIT:
            return text + _MORE
        text += entry
    return text if not text.endswith(": ") else ""


def schema_text(tools: Sequence[Mapping[str, Any]]) -> str:
    """Everything that any cue can say about these tools from their documents, constraints by argument too."""
    every = ("schema_required", "schema_types", "schema_values")
    lines = [*full_schema(tools, every), compact_schema(tools, every), *map(arguments_line, tools)]
    for document in tools:
        lines += _constraint_lines(document, document["parameters"])
    return "\n".join(lines)


def _constraint_lines(document: Mapping[str, Any], node: Any) -> list[str]:
    arguments = arguments_of(node)
    lines = [f"{name} {text}" for name, child in arguments.items() for text in _values(document, child)]
    return lines + [line for child in arguments.values() for line in _constraint_lines(document, child)]
