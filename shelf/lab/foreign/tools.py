"""Tools as name and JSON schema, from any form of list; and the nulls with which a table pads arguments."""

import re
from collections.abc import Mapping
from typing import Any

from seal.method.diagnosis.schema import judges
from shelf.lab.foreign.normal import Row, decoded

_DOCUMENTS = (
    "parameters", "input_schema", "inputSchema", "params", "parametersJsonSchema", "parameters_json_schema",
    "params_json_schema", "args_schema", "json_schema", "schema",
)  # fmt: skip
_OF_ARGUMENTS = re.compile("arg|param|schema|input|propert", re.IGNORECASE)
"""Parts of the names of fields in which a tool may hold its arguments."""
_TOOL_WITHIN = ("function", "custom", "toolSpec", "tool_spec")
_DECLARATIONS = ("functionDeclarations", "function_declarations", "tools")
_OWN = {"googleSearch", "google_search", "codeExecution", "code_execution", "urlContext", "url_context", "cachePoint"}
"""Keys of tools that Gemini's and Bedrock's endpoints run themselves."""
_COHERE = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}


def tools_of(value: Any) -> list[dict[str, Any]] | None:
    """Tools as name and parameters (a JSON schema), from any form of list; None without any.

    Tools with a type but no name are the endpoint's own. ValueError for any other tool that is not understood.
    """
    value = decoded("tools", value) if isinstance(value, str) else value
    if isinstance(value, Mapping) and not ({"name", *_TOOL_WITHIN, *_DECLARATIONS} & value.keys()):
        value = [_by_name(name, each) for name, each in value.items()]
    found, own = [], []
    for tool in value if isinstance(value, list | tuple) else [value] if value else ():
        tool = decoded("a tool", tool) if isinstance(tool, str) else tool
        if not isinstance(tool, Mapping):
            raise ValueError(f"a tool is {tool!r:.40}: an object is expected")
        inner = next((tool[key] for key in _TOOL_WITHIN if isinstance(tool.get(key), Mapping)), tool)
        if declared := next((inner[key] for key in _DECLARATIONS if isinstance(inner.get(key), list)), None):
            found += tools_of(declared) or []
        elif inner.get("name") is not None:
            found.append(_tool(inner))
        elif isinstance(inner.get("type"), str) and inner["type"] != "function":
            own.append({"name": inner["type"]})
        elif not _OWN & inner.keys():
            raise ValueError(f"a tool has no name, but {', '.join(map(str, inner)) or 'nothing'}")
    return found + own if found else None


def _by_name(name: str, tool: Any) -> Any:
    """An entry of tools by name: a tool, its JSON schema, or the tools of a server."""
    known = tool if isinstance(tool, Mapping) else {}
    if "name" in known or any(isinstance(known.get(key), list) for key in _DECLARATIONS):
        return tool
    if isinstance(known.get("description"), str) and not known.keys().isdisjoint(_DOCUMENTS):
        return {"name": name, **known}
    if not judges(known):
        raise ValueError(f"{name} among the tools has no parameters, but {', '.join(map(str, known))}")
    return {"name": name, "parameters": tool}


def _tool(tool: Row) -> dict[str, Any]:
    if not isinstance(tool["name"], str):
        raise ValueError(f"name is {tool['name']!r:.40}: the name of a tool is expected")
    found = {"name": tool["name"]}
    if isinstance(arguments := tool.get("parameter_definitions"), Mapping):
        given = {name: _cohere(each) for name, each in arguments.items() if isinstance(each, Mapping)}
        required = [name for name, each in arguments.items() if isinstance(each, Mapping) and each.get("required")]
        return {**found, "parameters": {"type": "object", "properties": given, "required": required}}
    document = next((tool[key] for key in _DOCUMENTS if tool.get(key) is not None), None)
    unread = [
        key for key, each in tool.items() if isinstance(each, Mapping | list) and each and _OF_ARGUMENTS.search(key)
    ]
    if document is None and unread:
        raise ValueError(f"the tool {tool['name']} has no parameters, but {', '.join(unread)}")
    document = decoded(f"the document of {tool['name']}", document) if isinstance(document, str) else document
    inner = document.get("json", document.get("jsonSchema")) if isinstance(document, Mapping) else None  # Bedrock
    document = inner if isinstance(inner, Mapping) and inner.get("type", "object") == "object" else document
    if document not in (None, []) and not isinstance(document, Mapping | bool):  # PHP writes {} as []
        raise ValueError(f"the parameters of {tool['name']} are {document!r:.40}: a JSON schema is expected")
    return {**found, "parameters": _lowered(document)} if isinstance(document, Mapping) and document else found


def _cohere(argument: Row) -> dict[str, Any]:
    """An argument of Cohere's first API, which uses Python's types; an argument of another type may be anything."""
    kind = _COHERE.get(str(argument.get("type")).lower())
    return {"type": kind} if kind else {}


def _lowered(schema: Any) -> Any:
    """A JSON schema with its types in lower case; Gemini writes them in capitals."""
    if isinstance(schema, list):
        return [_lowered(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    types = {"type": schema["type"].lower()} if isinstance(schema.get("type"), str) else {}
    return {key: each if key in ("const", "enum") else _lowered(each) for key, each in schema.items()} | types


def is_padded(value: Any) -> bool:
    """Whether a row comes from a table that gives all objects the same keys, with null for those that an object lacks.

    Arrow and parquet pad like this. The evidence is a list of objects with the same keys but different keys null.
    """
    if isinstance(value, Mapping):
        return any(map(is_padded, value.values()))
    if not isinstance(value, list):
        return False
    objects = [each for each in value if isinstance(each, Mapping)]
    keys, nulls = (
        {frozenset(key for key, each in item.items() if all_keys or each is None) for item in objects}
        for all_keys in (True, False)
    )
    return (len(keys) == 1 and len(nulls) > 1) or any(map(is_padded, value))


def without_padding(arguments: Any, schema: Any, padded: bool) -> Any:
    """Arguments without the nulls of a table: those under names that the tool does not have and, if the table is known
    to be padded, those of optional arguments. The policy wrote all other nulls."""
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(arguments, list):
        return [without_padding(each, schema.get("items"), padded) for each in arguments]
    if not isinstance(arguments, Mapping):
        return arguments
    required, known = schema.get("required"), schema.get("properties")
    asked = required if isinstance(required, list) else ()
    known = known if isinstance(known, Mapping) else {}
    own = asked if padded else [*asked, *known]
    kept = {name: each for name, each in arguments.items() if each is not None or name in own}
    return {name: without_padding(each, known.get(name), padded) for name, each in kept.items()}
