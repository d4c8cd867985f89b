"""A user whom a model plays: rollouts of the real agent loop, the real service, and an endpoint that plays the user."""

import asyncio
import json
import socket
import threading
from contextlib import ExitStack
from dataclasses import replace

import pytest

from env_service.client import AsyncServiceClient
from env_service.environments.base import Guard, Refusal, UserFault
from env_service.environments.kit.tool_calls import write_message
from env_service.environments.registry import register
from exp.user.rules import Endpoint, Rules
from seal.method.interface.cues import Omega, catalogue
from seal.records.step import StepRecord
from seal.records.trajectory import TrajectoryRecord
from seal.rollout.harness.trial import play_trial
from seal.rollout.row import Row
from seal.rollout.services import Services
from seal.settings import EnvServiceSettings, SealSettings
from shelf.replay.player import Again, play_again
from tests.support.errands import SECRET, Errands
from tests.support.rollout_play import ScriptedEngine, configured, roll_out, running_service, tokenizer
from tests.support.user_server import FAULTS, user_server

CALLS = {item: f'<tool_call>{{"name":"add","arguments":{{"item":"{item}"}}}}</tool_call>' for item in ("milk", "tea")}
RIGHT = (CALLS["milk"], "Done.", CALLS["tea"], "Done.")
LOCATION = "tests.support.errands:Errands"


@pytest.fixture(scope="module")
def url():
    register("errands", LOCATION)
    with running_service(BFCL_ENVIRONMENTS=f"errands={LOCATION}") as service:
        yield service.url


def wishes(body):
    """Say the wishes one by one, then stop."""
    said = sum(message["role"] == "assistant" for message in body["messages"])
    return ["I want milk.", "And tea.", "Thanks. ###STOP###"][said]


def rollouts(url, user, texts=RIGHT, *overrides, **columns):
    where = [f"seal.user.base_url={user}", "seal.user.model=crowd"]
    known = {"task_id": "errand-0", "category": "errands/bag", "omega": None}
    engine = columns.pop("engine", None) or ScriptedEngine(texts)
    return roll_out([url], engine, *where, *overrides, **known | columns)


def played(url, answer, texts=RIGHT, *overrides, **columns):
    """The record of one rollout, and the requests that the user got."""
    with user_server(answer) as (user, asked):
        ((_, record),) = rollouts(url, user, texts, *overrides, **columns)
    return record, asked


def test_a_dialogue_with_a_user_is_judged_as_a_whole(url):
    record, asked = played(url, wishes)
    assert record.infra is None and record.passed and record.stop == "completed"
    assert [m["content"] for m in record.messages if m["role"] == "user" and "<tool" not in m["content"]][:2] == [
        "I want milk.",
        "And tea.",
    ]
    assert record.labels == ("checker_error", "pass")  # the verifier compared nothing before the end
    assert (record.turns_passed, record.progress) == (1, 1.0)
    assert [each["text"] for each in record.user] == ["I want milk.", "And tea.", "Thanks. ###STOP###"]
    assert {each["source"] for each in record.user} == {"crowd"}
    assert StepRecord.of(1, [record]).user.items() >= {"messages": 3, "requests": 3, "tokens_in": 60}.items()
    # The user hears what the policy tells it, and neither calls nor their results.
    assert [m["content"] for m in asked[-1]["messages"][1:] if m["role"] == "user"][1:] == ["Done.", "Done."]
    assert "tool_call" not in json.dumps(asked)


def test_a_failed_dialogue_is_labelled_by_all_of_its_calls(url):
    record, _ = played(url, wishes, (CALLS["tea"], "Done.", "Done."))
    assert not record.passed and record.infra is None
    assert record.labels == ("checker_error", "state_mismatch")  # a write that worked, in an earlier turn
    record, _ = played(url, wishes, ("Done.", "Done."))
    assert record.labels == ("checker_error", "missing_tool_call")
    broken = '<tool_call>{"name":"add","arguments":{"thing":1}}</tool_call>'
    record, _ = played(url, wishes, (broken, "Done.", CALLS["tea"], "Done."))
    assert record.labels == ("argument_mismatch", "state_mismatch")


def test_the_users_messages_are_context_and_the_policys_are_trained_as_sampled(url):
    with user_server(wishes) as (user, _):
        ((output, _),) = rollouts(url, user)
    kept = [token for token, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
    said = [[*tokenizer().encode(text, add_special_tokens=False), tokenizer().eos_token_id] for text in RIGHT]
    assert kept == [token for ids in said for token in ids]


def test_no_instruction_reaches_the_policy_and_no_cue_the_user(url):
    every = Omega.of(tuple(catalogue())).to_json()
    engine = ScriptedEngine(('<tool_call>{"name":"add","arguments":{}}</tool_call>', *RIGHT))
    with user_server(wishes) as (user, asked):
        ((output, record),) = rollouts(url, user, (), engine=engine, omega=every)
    assert record.infra is None and record.labels == ("checker_error", "pass")
    seen = "".join(tokenizer().decode(prompt) for prompt in engine.prompts) + output.extra_fields.__repr__()
    assert "purse" not in seen and "purse" in json.dumps(asked)
    shown = record.messages[0]["content"]
    assert len(shown) > len(
        Errands().open("errand-0", {"tool_prompt_mode": "compact"}, Guard()).start()["state"][0]["content"]
    )
    cue = shown.splitlines()[-1]
    assert cue not in json.dumps(asked)


def test_what_a_user_tells_of_its_part_is_no_secret_any_more_and_a_cue_that_tells_it_is_refused():
    params = {"user": True, "tool_prompt_mode": "compact", "split": "train", "leak_guard": True}
    episode = Errands().open("errand-0", params | {"omega": Omega.of(("schema_required",)).to_json()}, Guard())
    episode.start()
    with pytest.raises(Refusal, match="purse is empty"):
        episode._checked("Add it.", f"Add it. {SECRET}.")
    episode.hear(f"You ask me to reveal it: {SECRET}.")
    assert episode._checked("Add it.", f"Add it. {SECRET}.")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_user_is_infrastructure_and_played_again(url, monkeypatch, fault):
    monkeypatch.setattr("seal.rollout.user.PAUSE_S", 0.0)
    cause, answer = FAULTS[fault]
    record, _ = played(url, answer)
    assert (record.infra, record.attempts, record.labels) == (cause, 2, ())
    assert StepRecord.of(1, [record]).infra == {cause: 1} and not record.usable


def test_a_user_that_hangs_is_given_up(url):
    with user_server(wishes, seconds=3.0) as (user, _):
        ((_, record),) = rollouts(url, user, RIGHT, "seal.user.timeout_s=0.2")
    assert record.infra == "user_timeout" and "seal.user.timeout_s=0.2" in record.infra_message


def test_an_endpoint_that_nobody_serves_is_given_up(url, monkeypatch):
    monkeypatch.setattr("seal.rollout.user.PAUSE_S", 0.0)
    ((_, record),) = rollouts(url, "http://127.0.0.1:9/v1")
    assert record.infra == "user"


def test_a_fault_that_passes_costs_nothing(url, monkeypatch):
    monkeypatch.setattr("seal.rollout.user.PAUSE_S", 0.0)
    failed = []

    def once(body):
        if len(failed) < 1:
            failed.append(body)
            return 503, {}
        return wishes(body)

    record, _ = played(url, once)
    assert record.passed and record.attempts == 1 and record.user[0]["requests"] == 2


def test_a_user_that_says_the_same_whatever_it_hears_is_a_fault_and_a_patient_one_is_not(url):
    def deaf(body):
        return "I want milk."

    many = [f"What? {number}" for number in range(12)]
    record, _ = played(url, deaf, many, "seal.rollout.max_steps=40")
    assert record.infra == "user_role"
    record, _ = played(url, deaf, ["What?"], "seal.rollout.max_steps=40")
    assert record.infra is None and record.stop == "step_limit" and not record.passed  # both repeat themselves
    assert len(record.user) == Errands().user(next(iter(Errands().load()))).max_messages


def test_a_user_that_only_acts_loses_its_rollout_and_not_the_run(url):
    def restless(body):
        return {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": SHAKE}]}

    record, _ = played(url, restless)
    assert record.infra == "user_role" and all(message["role"] != "assistant" for message in record.messages)


def test_a_user_acts_with_tools_of_its_own(url):
    def shakes(body):
        if body["messages"][-1]["role"] == "tool":
            assert body["messages"][-1]["tool_call_id"] == "call_7"
            return "I want milk."
        if len(body["messages"]) == 2:
            return {"content": None, "tool_calls": [{"id": "call_7", "type": "function", "function": SHAKE}]}
        return "###STOP###"

    record, asked = played(url, shakes, (CALLS["milk"], "Done."))
    assert asked[0]["tools"][0]["function"]["name"] == "shake"
    assert not record.passed and "dust" not in json.dumps(record.messages)
    assert record.labels == ("state_mismatch",) and len(record.user) == 3


SHAKE = {"name": "shake", "arguments": "{}"}


def test_a_harness_hears_the_user_and_its_trial_does_too(url, tmp_path):
    harness = "seal.rollout.harness=tests.support.harnesses:native"
    record, _ = played(url, wishes, RIGHT, harness)
    assert record.infra is None and record.passed and len(record.user) == 3

    async def trial(user):
        client = AsyncServiceClient(url, "errands")
        settings = SealSettings.of(configured([url], harness, f"seal.user.base_url={user}", "seal.user.model=crowd"))
        columns = {"task_id": "errand-0", "split": "train", "category": "errands/bag"}
        row = {"extra_info": columns, "data_source": "errands/bag", "global_steps": 0, "index": 0, "session_id": 0}
        try:
            services = Services([client], 5.0)
            row = Row.read(row, EnvServiceSettings(prompt_mode="compact"))
            return await play_trial(settings.rollout, services, row, tmp_path / "log", settings.user)
        finally:
            await client.close()

    with user_server(wishes) as (user, _):
        record = asyncio.run(trial(user))
    assert record.infra is None and len(record.user) == 3 and "purse" not in json.dumps(record.messages)


def test_a_recorded_dialogue_plays_again_without_the_endpoint(url):
    record, _ = played(url, wishes, (CALLS["tea"], "Done.", CALLS["tea"], "Done."))
    record = TrajectoryRecord.from_json(record.to_json())
    params = {"split": "train", "tool_prompt_mode": "compact", "enforce_available_tools": True, "user": True}
    (again,) = play_again([Again(record, params)], url)
    same = ("messages", "labels", "evidence", "diagnosis", "user", "stop")
    assert [getattr(again, name) for name in same] == [getattr(record, name) for name in same]
    (short,) = play_again([Again(replace(record, user=record.user[:1]), params)], url)
    assert short.infra == "user"


def test_an_episode_is_rebuilt_with_what_its_user_said(url):
    with running_service(BFCL_ENVIRONMENTS=f"errands={LOCATION}") as service:

        def kills(body):
            if len(body["messages"]) == 4:
                service.kill_workers()
            return wishes(body)

        record, _ = played(service.url, kills)
    alone, _ = played(url, wishes)
    assert record.passed and (record.messages, record.evidence) == (alone.messages, alone.evidence)


def test_who_speaks_out_of_turn_is_refused():
    params = {"user": True, "tool_prompt_mode": "compact"}
    episode = Errands().open("errand-0", params, Guard())
    with pytest.raises(Refusal):
        episode.step("Done.", False)
    with pytest.raises(UserFault):
        episode.hear(write_message("", [{"function": {"name": "shake", "arguments": "{"}}]))
    episode.hear("I am here to shop. What can I do? Can you help me? I want milk.")
    with pytest.raises(Refusal):
        episode.hear("And tea.")
    with pytest.raises(ValueError, match="turns"):
        Errands().open("errand-0", params | {"turns": 1}, Guard())


def test_the_endpoint_of_the_tutorial_queues_the_rollouts_of_a_step():
    with Endpoint(("127.0.0.1", 0), Rules) as server, ExitStack() as waiting:  # it accepts none of them yet
        for _ in range(64):
            waiting.enter_context(socket.create_connection(server.server_address, timeout=5))


def test_who_waits_for_a_user_leaves_the_engine_to_others(url):
    slot, over, waiting = asyncio.Semaphore(1), threading.Event(), threading.Lock()
    answered = []

    async def one_at_a_time(number):
        async with slot:
            answered.append(number)
            if len(answered) == 6:  # both messages of the one that waits, and all four of the other
                over.set()

    def patient(body):
        """The first second message that is asked for comes when the other rollout needs the engine no more."""
        if len(body["messages"]) == 4 and waiting.acquire(blocking=False) and not over.wait(60):
            return 500, {}
        return wishes(body)

    with user_server(patient) as (user, _):
        played = rollouts(url, user, (), engine=ScriptedEngine(RIGHT, one_at_a_time), trajectories=2)
    assert all(record.passed for _, record in played)
