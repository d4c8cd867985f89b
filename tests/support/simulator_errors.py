"""Every error message that the simulators can produce, read from their source."""

import ast
import importlib
import inspect
import json

from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING

from env_service.environments.bfcl.catalog import CLASSES, documents

VALUE = "x1"
"""The stand-in for a value that a message repeats."""

_HELPERS = {"_navigate_to_directory": ("cd", "find")}
_UNREACHABLE = {"_add_file", "_add_directory"}  # guarded by the tools that call them


def failures():
    """(tool, result) of every error, status and flag that a documented tool can report, without repetition."""
    found = {}
    for name in CLASSES:
        tools = {document["name"] for document in documents(name)}
        module = importlib.import_module(CLASS_FILE_PATH_MAPPING[name])
        for function in ast.walk(ast.parse(inspect.getsource(module))):
            if not isinstance(function, ast.FunctionDef) or function.name in _UNREACHABLE:
                continue
            callers = _HELPERS.get(function.name, (function.name,))
            for tool in tools & set(callers):
                found.update({(tool, result): None for result in _results(function, tool)})
    return sorted(found)


def _results(function, tool):
    for node in ast.walk(function):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield f"Error during execution: {_text(node.exc.args[0])}"
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("['error']"):
            yield json.dumps({"error": _text(node.value)})
        elif isinstance(node, ast.Dict) and None not in node.keys:
            result = {_text(key): _text(value) for key, value in zip(node.keys, node.values, strict=True)}
            if tool == "find" and "error" in result:
                result["error"] = result["error"].replace("cd:", "find:", 1)
            if any(key == "error" or value is False for key, value in result.items()) or _logged_out(result):
                yield json.dumps(result)


def _logged_out(result):
    return result.get("status") == "No user is currently logged in"


def _text(node):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else VALUE for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return f"{_text(node.left)}{_text(node.right)}"
    return VALUE
