"""Result rows of every handler that the official tool registers get the verdicts of its own decoder and checker."""

import importlib
import json
import random
from functools import cache, partial
from pathlib import Path

import pytest
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import is_empty_execute_response
from bfcl_eval.model_handler.utils import default_decode_execute_prompting

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.handlers import handlers
from env_service.environments.bfcl.tools import parse_reference
from seal.cli.main import execute, load
from shelf.authoring.tests.bfcl_official import check
from shelf.lab.foreign.files import read_files
from shelf.lab.foreign.judged import judge
from shelf.replay.service import service
from tests.support.samples import in_steps

FAULTS = ("none", "none", "drop", "repeat", "other", "unknown", "text", "fewer", "cut")


class Cut(list):
    """Calls whose text ends early."""


def python(calls) -> str:
    return ", ".join(
        f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})" for name, given in calls
    )


def objects(calls, name="name", arguments="arguments") -> list[dict]:
    return [{name: called, arguments: given} for called, given in calls]


def blocks(calls) -> str:
    return "\n".join(f"<tool_call>\n{json.dumps(each)}\n</tool_call>" for each in objects(calls))


def gemma(calls) -> str:
    def written(value) -> str:
        if isinstance(value, str):
            return f"<escape>{value}<escape>"
        if isinstance(value, list):
            return f"[{','.join(map(written, value))}]"
        if isinstance(value, dict):
            return f"{{{','.join(f'{key}:{written(each)}' for key, each in value.items())}}}"
        return json.dumps(value)

    return "".join(f"<start_function_call>call:{name}{written(given)}<end_function_call>" for name, given in calls)


def prompted(calls) -> str:
    return f"[{python(calls)}]"


def called(calls) -> list[dict]:
    return [{name: json.dumps(given)} for name, given in calls]


FORMS = {
    "CohereHandler": lambda calls: objects(calls, "tool_name", "parameters"),
    "MiningHandler": objects,
    "GeminiHandler": (
        lambda calls: [{name: given} for name, given in calls],
        lambda calls: f"```tool_code\n{prompted(calls)}\n```",
    ),
    "GorillaHandler": python,
    "NemotronHandler": lambda calls: f"<TOOLCALL>{prompted(calls)}</TOOLCALL>",
    "GLMHandler": lambda calls: f"{calls[0][0]}\n{json.dumps(calls[0][1])}",
    "BitAgentHandler": lambda calls: json.dumps(objects(calls)),
    "Falcon3FCHandler": lambda calls: f"<tool_call>\n{json.dumps(objects(calls))}\n</tool_call>",
    "FunctionGemmaHandler": gemma,
    "GraniteFunctionCallingHandler": lambda calls: "".join(f"<function_call> {json.dumps(o)}" for o in objects(calls)),
    "HammerHandler": lambda calls: f"```\n{json.dumps(objects(calls))}\n```",
    "LlamaHandler_3_1": lambda calls: "<|python_tag|>" + repr(objects(calls, arguments="parameters")),
    "MiniCPMFCHandler": lambda calls: (
        "<|tool_call_start|>\n```python\n" + "\n".join(python([each]) for each in calls) + "\n```\n<|tool_call_end|>\n"
    ),
    "PhiHandler": lambda calls: f"```python\n{prompted(calls)}\n```",
    "SalesforceLlamaHandler": lambda calls: json.dumps(objects(calls)),
    "SalesforceQwenHandler": lambda calls: "; ".join(json.dumps(each) for each in objects(calls)),
    "ThinkAgentHandler": lambda calls: f"<think>\n</think>{json.dumps(objects(calls))}",
    "QwenFCHandler": blocks,
    "Granite4FCHandler": blocks,
    "PelicanVLFCHandler": blocks,
    "NanbeigeFCHandler": blocks,
    "ArchHandler": called,
    "Granite3FCHandler": called,
    "PhiFCHandler": called,
    "MistralFCHandler": called,
    "NovaHandler": called,
    "OSSHandler": prompted,
    "NvidiaHandler": prompted,
}
"""How the class that decodes writes calls; one that is not here writes them as the models that it calls with tools, or
with a prompt, do (a pair has both)."""


@cache
def made(model: str):
    """The official handler of a model, without its clients; None if its package is missing."""
    known = handlers()[model]
    try:
        found = getattr(importlib.import_module(known.module), known.name)
    except ImportError:
        return None
    own = found.__new__(found)
    own.is_fc_model = known.is_fc_model
    return own


def forms() -> dict[str, tuple]:
    """The first model of each decoder, with the form that it reads."""
    found = {}
    for model, known in handlers().items():
        own = made(model)
        owner = known.name if own is None else own.decode_execute.__qualname__.partition(".")[0]
        form = FORMS.get(owner, (called, prompted))
        form = form[not known.is_fc_model] if isinstance(form, tuple) else form
        found.setdefault((owner, known.is_fc_model), (model, form))
    return dict(found.values())


def runs(step: int) -> dict[str, list[list]]:
    """Tasks with turns of messages, each calls or a text: references, and such with a fault."""
    draw, found = random.Random(5), {}
    for task in [*load_tasks().values()][::step]:
        turns = []
        for reference in task.reference:
            calls = [*map(parse_reference, reference)]
            size = draw.choice((1, 2, 3))
            turns.append([*(calls[at : at + size] for at in range(0, len(calls), size)), "All done."])
        _spoil(turns, draw)
        found[task.id] = turns
    return found


def _spoil(turns, draw):
    turn, fault = draw.choice(turns), draw.choice(FAULTS)
    at = draw.randrange(len(turn))
    if fault == "drop":
        del turn[at]
    elif fault == "repeat":
        turn.insert(at, turn[at])
    elif fault == "other":
        turn.insert(at, [("ls", {}), ("mkdir", {"dir_name": 'it\'s "x"'})])
    elif fault == "unknown":
        turn.insert(at, [("fly", {"height": 1.5, "to": ["x", None, True]})])
    elif fault == "text":
        turn.insert(at, "I will look, then {try}.")
    elif fault == "fewer":
        turns.pop()
    elif fault == "cut":
        turn.insert(at, Cut([("cd", {"folder": "document"})]))


def written(turns, form, single) -> list[list]:
    """The turns as a result. single: one call is written per step."""
    return [[each for step in turn for each in _steps(step, form, single)] for turn in turns]


def _steps(step, form, single):
    if isinstance(step, str):
        return [step]
    if isinstance(step, Cut):
        found = form(step)
        return [found[: len(found) // 2] if isinstance(found, str) else [{"cd": '{"folder": '}]]
    return [form([call]) for call in step] if single else [form(step)]


def decoded(result, decode) -> list[list]:
    """The calls of each step as the official evaluator has them, None for one that it drops."""

    def of(step):
        try:
            calls = decode(step)
        except Exception:  # as the evaluator does
            return None
        return None if is_empty_execute_response(calls) else calls

    return [[of(step) for step in turn] for turn in result]


def log_of(found) -> list:
    """The inference_log of a row; states are between the turns."""
    log = [[{"role": "state_info"}]]
    for turn in found:
        entries = [
            {"error": "x"} if calls is None else {"content": "Successfully decoded.", "model_response_decoded": calls}
            for calls in turn
        ]
        steps = {f"step_{at}": [{"role": "handler_log", **entry}] for at, entry in enumerate(entries)}
        log += [{"begin_of_turn_query": [], **steps}, [{"role": "state_info"}]]
    return log


@in_steps
def test_every_handler_s_rows_get_the_verdicts_of_its_own_decoder(tmp_path, step):
    theirs, verdicts, missing = {}, {}, []
    own = runs(step * 5 if step > 1 else 1)
    for model, form in forms().items():
        handler = made(model)
        if handler is None:
            missing.append(model)
        file = tmp_path / "result" / model / "multi_turn" / "BFCL_v4_multi_turn_result.json"
        file.parent.mkdir(parents=True)
        rows = [
            {"id": task, "result": written(turns, form, form is FORMS["GLMHandler"])} for task, turns in own.items()
        ]
        for row, turns in zip(rows, own.values(), strict=True):
            if handler is None:
                plain = written(turns, prompted, form is FORMS["GLMHandler"])
                found = decoded(plain, default_decode_execute_prompting)
                row["inference_log"] = log_of(found)
            else:
                found = decoded(row["result"], partial(handler.decode_execute, has_tool_call_tag=False))
            reference = load_tasks()[row["id"]].reference
            key = row["id"], repr(found).replace(", ", ",")
            if key not in verdicts:
                calls = [[step for step in turn if step is not None] for turn in found]
                verdicts[key] = len(calls) == len(reference) and check(load_tasks()[row["id"]], calls).valid
            theirs[model, row["id"]] = verdicts[key]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read, bad = read_files([tmp_path])
    alike = {}
    for rollout in read:
        said = [[(action.text, action.heard({})) for action in turn.actions] for turn in rollout.turns]
        alike.setdefault((rollout.task_id, rollout.mode, repr(said)), []).append(rollout)
    with service((), None) as url:
        judged = list(judge([each[0] for each in alike.values()], url))
    lost = [each.record.infra_message for each in judged if each.record.infra is not None]
    other = []
    for each, same in zip(judged, alike.values(), strict=True):
        for rollout in same:
            model = Path(rollout.place).parts[-3]
            if each.record.infra is None and each.record.passed != theirs[model, rollout.task_id]:
                other.append((model, rollout.task_id))
    share = sum(theirs.values()) / len(theirs)
    print(
        f"{len(theirs)} rows of {len(forms())} decoders, {len(bad)} unread, by their log: {', '.join(missing)}",
        *bad[:3],
        sep="\n",
    )
    assert other == [] and lost == [] and 0.3 < share < 0.9
    assert {each.path.parts[-3] for each in bad} <= {"ibm-granite_granite-20b-functioncalling"}  # it runs any text
    assert len(bad) < 0.2 * len(own)


@pytest.mark.parametrize("model", [model for model in forms() if made(model) is None])
def test_a_row_whose_handler_needs_a_missing_package_is_unread_without_its_log(tmp_path, capsys, model):
    file = tmp_path / "result" / model / "multi_turn" / "BFCL_v4_multi_turn_base_result.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"id": "multi_turn_base_1", "result": [[[{"pwd": "{}"}]]]}))
    arguments = ["rollouts", str(tmp_path), "--out", str(tmp_path / "out")]
    assert execute(load("diagnose"), arguments, "seal diagnose") == 2
    assert model in capsys.readouterr().err and not (tmp_path / "out").exists()


def result_file(tmp_path, *rows, model=""):
    file = tmp_path / "result" / model / "multi_turn" / "BFCL_v4_multi_turn_base_result.json"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def perfect(form) -> dict:
    task = load_tasks()["multi_turn_base_1"]
    calls = [[*map(parse_reference, reference)] for reference in task.reference]
    return {"id": task.id, "result": written([[each, "Done."] for each in calls], form, False)}


def test_a_row_of_unknown_form_is_unread_and_its_log_makes_it_known(tmp_path):
    rows = [perfect(FORMS[name]) for name in ("CohereHandler", "HammerHandler", "NemotronHandler", "Falcon3FCHandler")]
    log = log_of(decoded(perfect(prompted)["result"], default_decode_execute_prompting))
    read, bad = read_files([result_file(tmp_path, *rows, *(row | {"inference_log": log} for row in rows))])
    assert [each.line for each in bad] == [1, 2, 3, 4]
    with service((), 1) as url:
        assert [each.record.passed for each in judge(read, url)] == [True] * 4


def test_nothing_that_a_row_holds_is_run(tmp_path):
    ran = tmp_path / "ran"
    source = f"open({str(ran)!r}, 'w')"
    step = f"[{{'name': 'pwd', 'parameters': {{'a': {source}}}}}]"
    row = {"id": "multi_turn_base_1", "result": [[step]]}
    arithmetic = {"id": "multi_turn_base_1", "result": [[f"[pwd(a=1 + {source})]"]]}
    for model, each in (("meta-llama_Llama-3.1-8B-Instruct-FC", row), ("Qwen_Qwen3-8B", arithmetic)):
        read, bad = read_files([result_file(tmp_path, each, model=model)])
        assert not read and len(bad) == 1 and not ran.exists()
