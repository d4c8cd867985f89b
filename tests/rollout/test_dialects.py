"""The same rollouts in each dialect of the gateway, with the official SDKs; an engine with a script stands for vLLM."""

import pytest

from env_service.environments.kit.formats import FORMATS
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
