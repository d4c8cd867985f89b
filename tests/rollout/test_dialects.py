"""The same rollouts in each dialect of the gateway, with the official SDKs; an engine with a script stands for vLLM."""

import json
from typing import Any

import pytest

from env_service.environments.kit.formats import FORMATS
from seal.rollout.dialogue import Dialogue
from seal.rollout.harness.dialect import anthropic, chat, responses
from seal.rollout.harness.messages import Answer, ChatMessage, Item
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


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        (chat, {"messages": [{"role": "user", "content": "u"}], "seed": 1, "stream_options": {}, "stop": None}),
        (anthropic, {"messages": [{"role": "user", "content": "u"}], "seed": 1, "metadata": {}, "max_tokens": 1}),
        (responses, {"input": "u", "seed": 1, "store": True, "metadata": {}}),
    ],
)
def test_a_field_without_effect_is_told(dialect, fields):
    assert dialect.Request.model_validate_json(json.dumps(fields), context={}).ignored() == {"seed"}
