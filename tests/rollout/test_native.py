"""Rollouts in the model's own tool format, over the real service; an engine with a script stands for vLLM."""

import asyncio
import json
import re
from types import SimpleNamespace

import pytest
from verl.experimental.agent_loop.tool_parser import ToolParser

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.kit.tool_calls import UNREAD, ToolCalls, read_message, write_message
from seal.method.interface.cues import Omega
from seal.rollout.harness.chains import Policy
from seal.rollout.harness.messages import ChatMessage, Request
from seal.rollout.native import PARSERS, NativeFormat, request
from seal.rollout.speaker import Said
from tests.support.rollout_play import TASK, ScriptedEngine, roll_out
from tests.support.templates import FAMILIES, family_tokenizer

SIZES = (
    "env_service.prompt_mode=native",
    "data.max_prompt_length=20000",
    "data.max_response_length=60000",
    "actor_rollout_ref.rollout.max_model_len=80000",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=80000",
    "seal.rollout.max_message_tokens=4096",
    "seal.rollout.attempts=1",
)
KEEPING = ("hermes", "coder", "glm")


def spoken(family: str, content: str = "", *calls) -> str:
    """A message as the family's model samples it, without eos: as its template writes it."""
    entries = [
        {"id": str(n), "type": "function", "function": dict(zip(("name", "arguments"), call, strict=True))}
        for n, call in enumerate(calls)
    ]
    if family == "harmony":
        [(name, arguments)] = calls or [("", "")]
        text = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json.dumps(arguments)}<|call|>"
        return text if calls else f"<|channel|>final<|message|>{content}"
    asked = [{"role": "user", "content": "u"}]
    said = {"role": "assistant", "content": content} | ({"tool_calls": entries} if entries else {})
    texts = [
        family_tokenizer(family).apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
        for messages, prompt in ((asked, True), ([*asked, said], False))
    ]
    assert texts[1].startswith(texts[0])
    text = texts[1][len(texts[0]) :]
    for end in ("<|im_end|>\n", "<turn|>\n", "<|tool_response>"):
        text = text.removesuffix(end)
    return text + ("<|observation|>" if calls else "<|user|>") if family == "glm" else text


def reference(family: str, task_id: str = TASK) -> list[str]:
    texts = []
    for calls in BfclEnvironment().calls(load_tasks()[task_id]):
        texts += [spoken(family, "", call) for call in calls] + [spoken(family, "Done.")]
    return texts


def play(url, family, texts, *overrides, **columns):
    engine = ScriptedEngine(texts, None, family_tokenizer(family), FAMILIES[family].model_type)
    parser = f"actor_rollout_ref.rollout.multi_turn.format={FAMILIES[family].parser}"
    ((output, record),) = roll_out([url], engine, *SIZES, parser, *overrides, **columns)
    return output, record, engine


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reference_passes_and_its_tokens_are_those_sampled(url, family):
    texts = reference(family)
    output, record, engine = play(url, family, texts)
    assert (record.infra_message, record.score, record.stop) == ("", 1.0, "completed")
    encode, eos = engine.tokenizer.encode, engine.tokenizer.eos_token_id
    stops = {eos, *NativeFormat(FAMILIES[family].parser, engine.tokenizer).stops}
    said = [encode(text, add_special_tokens=False) for text in texts]
    said = [ids if ids[-1] in stops else [*ids, eos] for ids in said]
    kept = [token for token, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
    assert kept == [token for ids in said for token in ids]
    stream = output.prompt_ids + output.response_ids
    assert all(stream[: len(prompt)] == prompt for prompt in engine.prompts)
    if family in KEEPING:
        messages, tools, _ = request(record.messages[:-1])
        whole = engine.tokenizer.apply_chat_template(messages, tools=tools, return_dict=False)
        end = [stream[-1]] if family == "glm" else encode("\n", add_special_tokens=False)
        assert (stream if family != "glm" else stream[:-1]) == (whole if family == "glm" else whole[:-1]) and end


@pytest.mark.parametrize("category", ["miss_func", "miss_param", "long_context"])
def test_withheld_tools_are_announced_in_words_and_the_dialogue_goes_on(url, category):
    task = f"multi_turn_{category}_1"
    _, record, engine = play(url, "coder", reference("coder", task), task_id=task, category=category)
    assert (record.infra_message, record.score) == ("", 1.0)
    assert all(one == two[: len(one)] for one, two in zip(engine.prompts, engine.prompts[1:], strict=False))


@pytest.mark.parametrize("more", [(), ("seal.rollout.harness=tests.support.harnesses:native",)])
def test_a_value_of_a_tool_that_came_later_has_the_type_that_its_document_asks_for(url, more):
    task = "multi_turn_miss_func_1"
    (turn, (name,)) = next(iter(load_tasks()[task].withheld.items()))
    texts = [spoken("coder", "Done.")] * turn + [spoken("coder", "", (name, {"source": "5", "destination": "6"}))]
    _, record, _ = play(url, "coder", [*texts, spoken("coder", "Done.")], *more, task_id=task, category="miss_func")
    calls = [call for each in record.evidence[turn]["actions"] for call in each["calls"]]
    assert [(call["name"], call["arguments"]) for call in calls] == [(name, {"source": "5", "destination": "6"})]


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "12", "12"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"type": ["string", "null"]}, "12", "12"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "12", 12),
        ({"enum": ["11", "12", None]}, "12", "12"),
        ({"enum": ["11", "12", None]}, "null", None),
        ({"enum": [11, 12]}, "12", 12),
        ({"const": "12"}, "12", "12"),
        ({"allOf": [{"$ref": "#/$defs/Year"}]}, "12", "12"),
        ({"$ref": "#/$defs/Size"}, "12", 12),
        ({"$ref": "#/$defs/Again"}, "12", 12),
        ({"$ref": "other.json"}, "12", 12),
        ({"type": "string", "enum": None, "anyOf": None, "$ref": None}, "12", "12"),  # a row of an Arrow table
        ({"type": None, "allOf": [{"type": "integer", "enum": None}]}, "12", 12),
        ({"anyOf": 1}, "12", 12),
        ({"type": 1, "$ref": 2, "enum": 3}, "12", 12),
    ],
)
def test_a_value_keeps_the_type_that_its_document_asks_for(kind, written, value):
    known = {"Year": {"type": "string"}, "Size": {"type": "integer"}, "Again": {"$ref": "#/$defs/Again"}}
    schema = {"type": "object", "properties": {"x": kind}, "$defs": known}
    tool = {"name": "f", "description": "", "parameters": schema}
    text = f"<tool_call>\n<function=f>\n<parameter=x>\n{written}\n</parameter>\n</function>\n</tool_call>"
    read = asyncio.run(NativeFormat("qwen3_coder", family_tokenizer("coder")).read(text, "", [{"function": tool}]))
    assert ToolCalls().parse(read).calls == (("f", {"x": value}),)


@pytest.mark.parametrize("parameters", [None, [], 5, {"properties": [{"x": {"type": "string"}}]}, {"properties": None}])
def test_a_value_is_read_whatever_is_written_for_a_schema(parameters):
    tool = {"name": "f", "description": "", "parameters": parameters}
    text = "<tool_call>\n<function=f>\n<parameter=x>\n12\n</parameter>\n</function>\n</tool_call>"
    read = asyncio.run(NativeFormat("qwen3_coder", family_tokenizer("coder")).read(text, "", [{"function": tool}]))
    assert ToolCalls().parse(read).calls == (("f", {"x": 12}),)


def test_a_call_within_thoughts_that_do_not_end_is_unread():
    text = '<think>I could <tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    read = asyncio.run(NativeFormat("hermes", family_tokenizer("hermes")).read(text, "", []))
    assert ToolCalls().parse(read).calls == () and ToolCalls().parse(read).refusals


CALL = ("cd", {"folder": "document"})
WRONG = {
    "no such tool": lambda family: spoken(family, "", ("change_folder", {"folder": "document"})),
    "wrong argument": lambda family: spoken(family, "", ("cd", {"path": "document"})),
    "another effect": lambda family: spoken(family, "", ("cd", {"folder": "temp"})),
    "cut off": lambda family: spoken(family, "", CALL).replace(PARSERS[FAMILIES[family].parser].closing, ""),
    "outside the format": lambda family: spoken(family, '{"name": "cd", "arguments": {"folder": "document"}}'),
    "no call": lambda family: spoken(family, "I have done it."),
    "nothing": lambda family: spoken(family, ""),
}


def judged(record) -> tuple:
    """Verdict, labels and diagnosis without its words."""
    diagnosis = [{name: value for name, value in turn.items() if name != "reason"} for turn in record.diagnosis]
    return record.infra_message, record.score, record.labels, str(diagnosis)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_play_has_the_labels_that_it_has_in_a_text_mode(url, wrong):
    found = {}
    for family in ("hermes", "coder", "glm", "harmony"):
        texts = [WRONG[wrong](family), *[spoken(family, "Done.")] * 9]
        _, record, _ = play(url, family, texts)
        found[family] = judged(record)
    texts = [WRONG[wrong]("hermes"), *[spoken("hermes", "Done.")] * 9]
    _, record, _ = play(url, "hermes", texts, "env_service.prompt_mode=bfcl_qwen_fc")
    assert record.labels and set(found.values()) == {judged(record)}


def test_a_bad_call_takes_no_other_with_it_and_the_answer_of_each_is_its_own(url):
    omega = Omega.of(["feedback_error"]).to_json()
    text = f"<tool_call>\n{{broken\n</tool_call>\n{spoken('hermes', '', CALL)}"
    _, record, engine = play(url, "hermes", [text, spoken("hermes", "Done.")], omega=omega)
    first = record.evidence[0]["actions"][0]
    assert [call["name"] for call in first["calls"]] == ["cd"] and len(first["refusals"]) == 1
    messages = request(record.messages).messages
    roles = [(message["role"], message.get("name")) for message in messages[:5]]
    assert [role for role in roles if role[0] != "system"][:4] == [
        ("user", None),
        ("assistant", None),
        ("tool", "cd"),
        ("user", None),
    ]
    assert record.infra is None and len(engine.prompts) > 1


def test_omega_speaks_in_descriptions_in_the_system_text_and_in_answers(url):
    omega = Omega.of(["schema_required", "feedback_error", "use_tools"]).to_json()
    texts = [spoken("coder", "", ("cd", {"folder": "nowhere"})), spoken("coder", "Done.")]
    seen = {}
    for training in (True, False):
        _, record, engine = play(url, "coder", texts, training=training, omega=omega)
        assert record.infra is None
        seen[training] = [engine.tokenizer.decode(prompt) for prompt in engine.prompts[:2]]
    assert "\nArguments: folder (required)</description>" in seen[True][0]
    assert "# Advice" in seen[True][0].partition("<tools>")[0] and "- cd: folder" not in seen[True][0]
    assert "Arguments: " not in seen[False][0] and "# Advice" not in seen[False][0]
    assert len(seen[True][1]) - len(seen[True][0]) > len(seen[False][1]) - len(seen[False][0])


def test_every_parser_of_verl_has_its_marks():
    assert set(PARSERS) == set(ToolParser._registry)


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "say",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "count": {"type": "integer"},
                    "loud": {"type": "boolean"},
                    "to": {"type": "array"},
                },
            },
        },
    }
]
MEANT = {"text": "007", "count": 2, "loud": False, "to": ["a", "b"]}
_TAGS = ("text", "007"), ("count", "2"), ("loud", "false"), ("to", '["a", "b"]')
_GPT = '<|constrain|>json<|message|>{"text": "007", "count": 2, "loud": false, "to": ["a", "b"]}<|call|>'
_BAR = "\uff5c"
WRITTEN = {
    "hermes": ('<tool_call>\n{"name": "say", "arguments": ', json.dumps(MEANT), "}\n</tool_call>"),
    "gpt-oss": ("<|channel|>commentary to=functions.say ", "", _GPT),
    "qwen3_coder": (
        "<tool_call>\n<function=say>\n",
        "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in _TAGS),
        "</function>\n</tool_call>",
    ),
    "glm": (
        "<tool_call>say\n",
        "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in _TAGS),
        "</tool_call>",
    ),
    "seed": (
        "<seed:tool_call><function=say>",
        "".join(f"<parameter={key}>{value}</parameter>" for key, value in _TAGS),
        "</function></seed:tool_call>",
    ),
    "minimax": (
        '<minimax:tool_call>\n<invoke name="say">\n',
        "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in _TAGS),
        "</invoke>\n</minimax:tool_call>",
    ),
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.say:0<|tool_call_argument_begin|>",
        json.dumps(MEANT),
        "<|tool_call_end|><|tool_calls_section_end|>",
    ),
    "deepseek_v4": (
        f'<{_BAR}DSML{_BAR}tool_calls>\n<{_BAR}DSML{_BAR}invoke name="say">\n',
        "".join(
            f'<{_BAR}DSML{_BAR}parameter name="{key}" string="{str(key == "text").lower()}">{value}'
            f"</{_BAR}DSML{_BAR}parameter>\n"
            for key, value in _TAGS
        ),
        f"</{_BAR}DSML{_BAR}invoke>\n</{_BAR}DSML{_BAR}tool_calls>",
    ),
    "gemma4": (
        "<|tool_call>call:say{",
        'text:<|"|>007<|"|>,count:2,loud:false,to:[<|"|>a<|"|>,<|"|>b<|"|>]',
        "}<tool_call|>",
    ),
}


def read(parser: str, text: str) -> tuple[str, list]:
    return read_message(asyncio.run(NativeFormat(parser, family_tokenizer("hermes")).read(text, "", TOOLS)))


@pytest.mark.parametrize("parser", WRITTEN)
def test_a_call_is_read_as_it_was_written_and_a_cut_one_is_unread(parser):
    opening, middle, closing = WRITTEN[parser]
    whole, marks = opening + middle + closing, PARSERS[parser]
    (made,) = read(parser, whole)[1]
    assert (made["function"]["name"], json.loads(made["function"]["arguments"])) == ("say", MEANT)
    thought = {
        "gpt-oss": "<|channel|>analysis<|message|>{}<|end|><|start|>assistant",
        "seed": "<seed:think>{}</seed:think>",
        "gemma4": "<|channel>thought\n{}<channel|>",
    }.get(parser, "{}</think>")
    content, entries = read(parser, thought.format(whole) + whole)
    assert marks.opening not in content.rpartition("</think>")[2]
    assert entries == [made] and "</think>" in content
    for broken in (
        whole.replace(marks.closing, ""),
        closing,
        opening + "{" + marks.closing if not middle else whole.replace(middle, "{", 1),
    ):
        assert [UNREAD in entry for entry in read(parser, broken)[1]] == [True], broken
    assert [UNREAD in entry for entry in read(parser, whole + whole.replace(marks.closing, "") + whole)[1]][:1] == [
        False
    ]


@pytest.mark.parametrize("name", ["say-it", "say.it", "say:it", "say/it", "mcp__say__it", "\u00e9crire", "from"])
@pytest.mark.parametrize("parser", WRITTEN)
def test_a_tool_may_have_any_name_without_a_blank(parser, name):
    (made,) = read(parser, "".join(WRITTEN[parser]).replace("say", name))[1]
    assert (made["function"]["name"], "to" in json.loads(made["function"]["arguments"])) == (name, True)


@pytest.mark.parametrize("key", ["user-id", "$set", "@type", "a.b", "gr\u00f6\u00dfe", "from"])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_argument_may_have_any_name_and_an_object_too(family, key):
    called = (("say-it", {key: {key: [-1.5, None, "x"]}}),)
    form = NativeFormat(FAMILIES[family].parser, family_tokenizer(family))
    assert ToolCalls().parse(asyncio.run(form.read(spoken(family, "", *called), "", []))).calls == called


@pytest.mark.parametrize("parser", ["qwen3_coder", "glm", "seed", "minimax", "deepseek_v4", "gemma4"])
def test_a_text_keeps_its_line_breaks_but_for_those_of_the_template(parser):
    """As verl and vLLM read it: one after <parameter=NAME> and one before its end are no part of the value."""
    for said, own in (("\n7", "7"), ("7\n", "7"), ("\n7\n", "7"), ("\n\n7\n\n", "\n7\n"), ("\n", "")):
        (made,) = read(parser, re.sub("\n?007\n?", said, "".join(WRITTEN[parser])))[1]
        meant = own if PARSERS[parser].opening == "<function=" else said
        assert json.loads(made["function"]["arguments"])["text"] == meant


def test_broken_json_is_no_call_without_arguments():
    text = "".join(WRITTEN["kimi"]).replace('"007"', "007")
    assert [UNREAD in entry for entry in read("kimi", text)[1]] == [True]


def named(harness: str) -> str:
    return f"seal.rollout.harness=tests.support.harnesses:{harness}"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("harness", ["native", "over_mcp", "streaming"])
def test_a_harness_trains_in_the_models_own_format(url, family, harness):
    texts = reference(family)
    own, record, _ = play(url, family, texts)
    output, through, _ = play(url, family, texts, named(harness))
    assert (through.infra_message, through.score, through.rewritten, through.unsampled_calls) == ("", 1.0, 0, 0)
    assert through.labels == record.labels and through.tokens == record.tokens
    if harness == "streaming":
        assert (output.prompt_ids, output.response_ids) == (own.prompt_ids, own.response_ids)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_play_of_a_harness_has_the_same_labels(url, wrong):
    texts = [WRONG[wrong]("coder"), *[spoken("coder", "Done.")] * 9]
    _, record, _ = play(url, "coder", texts)
    for harness in ("native", "over_mcp"):
        _, through, _ = play(url, "coder", texts, named(harness))
        assert judged(through) == judged(record)


def test_a_harness_hears_nothing_where_the_policy_says_nothing():
    async def say(dialogue, most):
        return Said(write_message("", []))

    stream = SimpleNamespace(sampled=[SimpleNamespace(ids=[1], logprobs=[0.0])], ids=[1])
    policy = Policy(lambda number: SimpleNamespace(stream=stream, limit="", say=say), "native", None)
    answer = asyncio.run(policy.complete(Request((ChatMessage("user", "u"),), {})))
    assert (answer.text, answer.heard) == ("", ChatMessage("assistant", ""))
    assert policy.reach("") == "" and policy.said


def test_omega_speaks_to_a_harness_as_to_seals_own_loop(url):
    omega = Omega.of(["schema_required", "feedback_error", "use_tools"]).to_json()
    _, record, engine = play(url, "coder", [spoken("coder", "Done.")], named("native"), omega=omega)
    start = engine.tokenizer.decode(engine.prompts[0])
    assert record.infra is None and "\nArguments: folder (required)</description>" in start
    assert "# Advice" in start.partition("<tools>")[0]
