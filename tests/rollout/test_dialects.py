"""The same rollouts in each dialect of the gateway, with the official SDKs; an engine with a script stands for vLLM."""

import json
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from env_service.environments.kit.formats import FORMATS
from seal.rollout.dialogue import Dialogue
from seal.rollout.harness.dialect import anthropic, chat, responses, wire
from seal.rollout.harness.messages import Answer, ChatMessage, Item, meaning
from seal.rollout.harness.task import Address, Task
from tests.rollout.test_harness import NATIVE, WRONG, native_texts
from tests.support.rollout_play import ScriptedEngine, outcome, roll_out, running_service

DIALECTS = (
    "chat_streamed",
    "messages",
    "messages_streamed",
    "messages_by_tool_runner",
    "responses",
    "responses_streamed",
    "responses_by_id",
    "responses_by_id_streamed",
)
PARALLEL = "\n".join(["Both.", *(FORMATS["hermes"].render_call(name, {}) for name in ("ls", "pwd"))])
SCRIPTS = {
    "reference": native_texts(),
    "parallel calls beside a text": (PARALLEL, "Done."),
    "unreadable call": (WRONG["unreadable"][0], "Done."),
    "thoughts": ("<think>\nHm.\n</think>\n\n" + PARALLEL, "<think>\nHm.\n</think>\n\nDone."),
    "empty": ("",),
}


@pytest.fixture(scope="module")
def url():
    with running_service() as service:
        yield service.url


def named(dialect: str) -> str:
    return f"seal.rollout.harness=tests.support.dialects:{dialect}"


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_gives_the_tokens_labels_and_score_of_chat_completions(url, dialect, script):
    played = {}
    for name in ("chat", dialect):
        ((output, record),) = roll_out(
            [url],
            engine := ScriptedEngine(SCRIPTS[script]),
            named(name),
            *NATIVE,
        )
        assert (record.infra, record.infra_message, record.rewritten) == (None, "", 0)
        played[name] = (outcome((output, record)), engine.prompts)
    assert played[dialect] == played["chat"]
    assert script != "reference" or record.score == 1.0


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_a_budget_ends_a_rollout_in_every_dialect(url, dialect):
    budget = "seal.rollout.max_steps=3"
    ((output, record),) = roll_out([url], ScriptedEngine(native_texts()), named(dialect), *NATIVE, budget)
    assert (record.infra, record.stop, record.score) == (None, "max_steps", 0.0) and any(output.response_mask)


def test_every_sdk_reads_a_cut_message_and_a_refusal_as_its_own(url):
    ((_, record),) = roll_out([url], ScriptedEngine(("A long answer. " * 40,)), named("ends"), *NATIVE)
    assert (record.infra, record.infra_message) == (None, "")


def test_a_request_may_name_an_earlier_response_or_its_items_instead_of_sending_them():
    user = {"role": "user", "content": "Hello"}
    said = ChatMessage("assistant", "I look.", (("ls", {}),))
    answer = Answer(said, said.text, [("ls", {})], False, 1, [("a", 0.0)])
    kept: dict[str, tuple[Item, ...]] = {}

    def read(**fields: Any) -> responses.Request:
        return responses.Request.model_validate_json(json.dumps(fields), context=kept)

    for store in (False, True):
        body = (first := read(input=[user], instructions="Be brief.", store=store)).body(answer)
        kept |= first.keeps(body)
        assert bool(kept) == store
    result = {"type": "function_call_output", "call_id": body["output"][1]["call_id"], "output": "a"}
    references = [{"type": "item_reference", "id": item["id"]} for item in body["output"]]
    whole = read(input=[user, *body["output"], result]).asked()
    assert [message.role for message in whole.messages] == ["user", "assistant", "tool"]
    assert whole.messages[1] == said
    assert read(input=[result], previous_response_id=body["id"]).asked() == whole, "without its instructions"
    assert read(input=[user, *references, result]).asked() == whole


@pytest.mark.parametrize(
    ("base_url", "anthropic_base_url"),
    [("http://a:1/v1", "http://a:1"), ("https://a/openai/v1/", "https://a/openai"), ("https://a/api", "https://a/api")],
)
def test_each_sdk_gets_the_address_that_it_expects(base_url, anthropic_base_url):
    dialogue = Dialogue(messages=[{"role": "user", "content": "u"}])
    variables = Task(dialogue, Address(base_url, "key", "a-model"), "", 9).variables
    assert (variables["OPENAI_BASE_URL"], variables["ANTHROPIC_BASE_URL"]) == (base_url, anthropic_base_url)
    assert {variables["OPENAI_API_KEY"], variables["ANTHROPIC_API_KEY"]} == {"key"}
    assert {variables["OPENAI_MODEL"], variables["ANTHROPIC_MODEL"]} == {"a-model"}


USER = [{"role": "user", "content": "u"}]
NULLS = {"type": "object", "properties": None, "required": None}
TOOLS = {
    chat: [{"type": "function", "function": {"name": "ls", "parameters": NULLS, "strict": None}}],
    anthropic: [{"name": "ls", "input_schema": NULLS}],
    responses: [{"type": "function", "name": "ls", "parameters": NULLS, "strict": None}],
}


def request_of(dialect: Any, history: list[Any], **fields: Any) -> Any:
    given = {"input" if dialect is responses else "messages": history, "tools": TOOLS[dialect], **fields}
    return dialect.Request.model_validate_json(json.dumps(given), context={})


@pytest.mark.parametrize(
    ("dialect", "fields", "told"),
    [
        (chat, {"seed": 1, "stream_options": {}, "stop": None, "safety_identifier": "a"}, {"seed"}),
        (
            chat,
            {"messages": [{**USER[0], "name": "Bo"}], "parallel_tool_calls": False},
            {"name", "parallel_tool_calls"},
        ),
        (chat, {"tools": [{"type": "function", "function": {"name": "ls", "strict": True}}]}, {"strict"}),
        (chat, {"messages": [*USER, {"role": "assistant", "content": "a", "reasoning": "Hm."}]}, {"reasoning"}),
        (anthropic, {"seed": 1, "metadata": {}, "max_tokens": 1}, {"seed"}),
        (
            anthropic,
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            {"disable_parallel_tool_use"},
        ),
        (anthropic, {"output_config": {"effort": "low", "format": None}}, {"effort"}),
        (anthropic, {"tools": [{"name": "ls", "input_schema": {}, "input_examples": [{}]}]}, {"input_examples"}),
        (responses, {"seed": 1, "store": True, "metadata": {}}, {"seed"}),
        (responses, {"input": [*USER, {"type": "reasoning", "id": "rs", "summary": ["Hm."]}]}, {"summary"}),
        (responses, {"text": {"format": {"type": "text"}, "verbosity": "low"}}, {"verbosity"}),
        (responses, {"tools": [{"type": "function", "name": "ls", "defer_loading": True}]}, {"defer_loading"}),
    ],
)
def test_a_field_without_effect_is_told_once_wherever_it_stands(dialect, fields, told, monkeypatch):
    warned: list[str] = []
    monkeypatch.setattr(wire, "TOLD", set())
    monkeypatch.setattr(wire.logger, "warning", lambda _text, name: warned.append(name))
    for _ in range(2):
        request_of(dialect, USER, **fields)
    assert sorted(warned) == sorted(told)


ARGUMENTS = {"a": 57.0, "é": "ü\n", "none": None, "deep": [{"x": [1, 2.5, True]}]}
SAID = ChatMessage("assistant", "I look.", (meaning("ls", ARGUMENTS), meaning("pwd", {})))
ANSWERS = {
    "calls": Answer(SAID, SAID.text, [("ls", ARGUMENTS), ("pwd", {})], False, 3, [("a", -0.1), ("\ufffd", -0.2)]),
    "calls alone": Answer(SAID._replace(text=""), "", [("ls", ARGUMENTS), ("pwd", {})], False, 3, [("a", -0.1)]),
    "text": Answer(ChatMessage("assistant", "Hi"), "Hi", [], False, 3, [("a", -0.1)]),
    "nothing": Answer(ChatMessage("assistant", ""), "", [], False, 3, [("a", -0.1)]),
    "cut": Answer(ChatMessage("assistant", "Hi"), "Hi", [], True, 3, [("a", -0.1)]),
}
TYPES = {
    chat: ([ChatCompletion], [ChatCompletionChunk], {"logprobs": True}),
    anthropic: ([Message, BetaMessage], [RawMessageStreamEvent, BetaRawMessageStreamEvent], {}),
    responses: ([Response], [ResponseStreamEvent], {"include": ["message.output_text.logprobs"], "instructions": "i"}),
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("dialect", TYPES)
def test_an_answer_and_its_events_are_strictly_of_the_sdks_types_and_its_history_is_recognised(dialect, answer):
    wholes, pieces, fields = TYPES[dialect]
    body = (request := request_of(dialect, USER, **fields)).body(ANSWERS[answer])
    wire_form = json.loads(json.dumps(body))
    lines = [line.removeprefix("data: ") for line in request.events(body).decode().splitlines() if line[:1] == "d"]
    for piece in pieces:
        for line in lines:
            assert line == "[DONE]" or TypeAdapter(piece).validate_python(json.loads(line), strict=True)
    for whole in wholes:
        read = TypeAdapter(whole).validate_python(wire_form, strict=True)
        for options in ({}, {"exclude_none": True}, {"exclude_unset": True}):
            dumped = read.model_dump(mode="json", **options)
            if dialect is responses:
                history = dumped["output"]
            elif dialect is chat:
                history = [dumped["choices"][0]["message"]]
            else:
                history = [{"role": "assistant", "content": dumped["content"]}]
            asked = request_of(dialect, [*USER, *history, *USER]).asked()
            assert asked.messages[1:-1] == (ANSWERS[answer].heard,)


def test_a_header_for_the_provider_that_differs_in_each_request_is_no_part_of_the_dialogue():
    texts = (
        ["x-anthropic-billing-header: cc_version=2.1; cch=eb6c6;", "Be "],
        ["x-anthropic-billing-header: b", "Be "],
    )
    one, other = (
        request_of(anthropic, USER, system=[{"type": "text", "text": text} for text in (*each, "brief.")]).asked()
        for each in texts
    )
    assert one == other and one.messages[0] == ChatMessage("system", "Be brief.")


def function(name: str, arguments: str) -> dict[str, Any]:
    return {"id": name, "type": "function", "index": 0, "function": {"name": name, "arguments": arguments}}


OTHER = json.dumps({**dict(reversed(ARGUMENTS.items())), "a": 57}, indent=1, ensure_ascii=False)
CALLED = [{"type": "function_call", "call_id": "ls", "name": "ls", "arguments": OTHER, "parsed_arguments": ARGUMENTS}]
CALLED += [{"type": "function_call", "call_id": "pwd", "name": "pwd", "arguments": "", "status": "completed"}]
USED = [{"type": "tool_use", "id": "ls", "name": "ls", "input": json.loads(OTHER), "caller": {"type": "direct"}}]
USED += [{"type": "tool_use", "id": "pwd", "name": "pwd", "input": {}}]
TEXTS = [{"type": "text", "text": "I ", "citations": None}, {"type": "text", "text": "look."}]


@pytest.mark.parametrize(
    ("dialect", "history"),
    [
        (
            chat,
            [
                {
                    "role": "assistant",
                    "content": content,
                    "tool_calls": [function("ls", OTHER), function("pwd", "")],
                    "refusal": None,
                    "function_call": None,
                    "reasoning_content": "Hm.",
                },
                {"role": "tool", "tool_call_id": "pwd", "name": "pwd", "content": "2"},
                {"role": "tool", "tool_call_id": "ls", "content": [{"type": "text", "text": "1"}]},
            ],
        )
        for content in (" I look.\n", "<think>\nHm.\n</think>\n\nI look.", TEXTS)
    ]
    + [
        (
            anthropic,
            [
                {"role": "assistant", "content": [*thoughts, *TEXTS, *USED]},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "pwd", "content": "2", "is_error": False},
                        {"type": "tool_result", "tool_use_id": "ls", "content": [{**TEXTS[1], "text": "1"}]},
                    ],
                },
            ],
        )
        for thoughts in ([], [{"type": "thinking", "thinking": "Hm.", "signature": "s"}])
    ]
    + [
        (
            responses,
            [
                {"role": "assistant", "content": content},
                *thoughts,
                *CALLED,
                {"type": "function_call_output", "call_id": "pwd", "output": "2", "status": "completed"},
                {"type": "function_call_output", "call_id": "ls", "output": [{"type": "input_text", "text": "1"}]},
            ],
        )
        for content in ("I look.", [{"type": "output_text", "text": "I look.", "annotations": []}])
        for thoughts in ([], [{"type": "reasoning", "id": "rs", "summary": []}])
    ]
    + [
        (
            responses,
            [
                *CALLED,
                {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                {"type": "function_call_output", "call_id": "ls", "output": "1"},
                {"type": "function_call_output", "call_id": "pwd", "output": "2"},
            ],
        ),
        (
            chat,
            [
                {"role": "assistant", "content": TEXTS, "name": "Bo"},
                {"role": "assistant", "tool_calls": [function("ls", OTHER), function("pwd", "")]},
                {"role": "tool", "tool_call_id": "pwd", "content": "2"},
                {"role": "tool", "tool_call_id": "ls", "content": "1"},
            ],
        ),
        (
            anthropic,
            [
                *({"role": "assistant", "content": [block]} for block in ({"type": "text", "text": "I look."}, *USED)),
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "ls", "content": "1"}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "pwd", "content": "2"}]},
            ],
        ),
    ],
)
def test_a_message_is_recognised_in_every_form_in_which_sdks_repeat_it(dialect, history):
    _, said, first, second = request_of(dialect, [*USER, *history]).asked().messages
    assert said == SAID and (first.text, second.text) == ("1", "2")


def test_a_reminder_before_the_results_leaves_them_in_the_order_of_their_calls():
    results = [{"type": "tool_result", "tool_use_id": name, "content": name} for name in ("pwd", "ls")]
    history = [
        *USER,
        {"role": "assistant", "content": USED},
        {"role": "system", "content": "9 tokens are left."},
        {"role": "user", "content": [{"type": "text", "text": "Go on."}, *results]},
    ]
    messages = request_of(anthropic, history).asked().messages
    assert [each.text for each in messages[2:]] == ["9 tokens are left.", "Go on.", "ls", "pwd"]


PARTS = [{"type": "text", "text": text} for text in ("one", "two")]
RESULTS = {
    chat: [{"role": "tool", "tool_call_id": "ls", "content": PARTS}],
    anthropic: [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "ls", "content": PARTS}]}],
    responses: [{"type": "function_call_output", "call_id": "ls", "output": PARTS}],
}


@pytest.mark.parametrize("dialect", RESULTS)
def test_the_parts_of_a_result_or_of_the_users_message_are_lines_as_vllm_shows_them(dialect):
    history = [*RESULTS[dialect], {"role": "user", "content": PARTS}]
    assert [each.text for each in request_of(dialect, history).asked().messages] == ["one\ntwo"] * 2


def test_two_texts_of_the_policy_stay_two_messages():
    one, other = ({"role": "assistant", "content": text} for text in ("Done.", "And more."))
    for last in (other, {**other, "tool_calls": [function("pwd", "")]}):
        messages = request_of(chat, [*USER, one, last]).asked().messages
        assert [each.text for each in messages] == ["u", "Done.", "And more."]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("options", [None, {}, {"include_usage": True}])
def test_a_streamed_completion_says_one_thing_per_chunk(answer, options):
    """Haystack raises at a chunk with a text and calls, AutoGen drops these calls, and LlamaIndex all but the first."""
    request = request_of(chat, USER, stream=True, stream_options=options, logprobs=True)
    whole = request.body(ANSWERS[answer])
    *pieces, end = request.events(whole).decode().removeprefix("data: ").split("data: ")
    chunks = [json.loads(piece) for piece in pieces]
    said = [chunk["choices"] for chunk in chunks]
    usages = [chunk["usage"] for chunk in chunks if chunk["usage"]]
    assert end.strip() == "[DONE]" and usages == [whole["usage"]] * bool(options)
    if options:
        assert said.pop() == [] and chunks[-1]["usage"], "AutoGen reads no reason beside a usage"
    ((first,), *calls, (last,)) = said
    message = whole["choices"][0]["message"]
    assert first["delta"] == {"role": "assistant", "content": message["content"]} and first["logprobs"]["content"]
    told = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls", ()))]
    assert [choice["delta"] for (choice,) in calls] == [{"tool_calls": [call]} for call in told]
    assert (last["delta"], last["finish_reason"]) == ({}, whole["choices"][0]["finish_reason"])
    assert {choice["finish_reason"] for (choice,) in (said[0], *calls)} == {None}
