"""Rollouts through a harness over the real service and gateway; an engine with a script stands for vLLM."""

import asyncio
import sys
from ast import literal_eval
from copy import deepcopy
from functools import cache
from itertools import count, pairwise
from typing import get_args

import pytest
from omegaconf import OmegaConf

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.kit.formats import FORMATS
from seal.method.interface.cues import Omega
from seal.records.trajectory import FATAL, TrajectoryRecord
from seal.rollout.dialogue import Dialogue
from seal.rollout.harness.chains import Policy
from seal.rollout.harness.command import last_words
from seal.rollout.harness.mcp import USER
from seal.rollout.harness.speaker import HarnessSpeaker
from seal.rollout.harness.task import Address, Task, require_harness
from seal.rollout.harness.trial import _Policy as TrialPolicy
from seal.rollout.speaker import SpeakerFault
from seal.settings import SealSettings, SettingsError
from seal.system.causes import Cause
from seal.system.errors import LaunchError
from seal.system.files import write_jsonl
from tests.support.rollout_play import (
    TASK,
    ScriptedEngine,
    TokenOutput,
    configured,
    dialogues,
    outcome,
    reference_texts,
    roll_out,
    running_service,
    tokenizer,
)

TEXT = f"[{sys.executable},exp/harness/plain_text.py]"
NATIVE = (
    "env_service.prompt_mode=bfcl_qwen_fc",
    "data.max_prompt_length=20000",
    "data.max_response_length=60000",
    "actor_rollout_ref.rollout.max_model_len=80000",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=80000",
    "seal.rollout.max_message_tokens=4096",
    "seal.rollout.attempts=1",
)
CATEGORIES = ("base", "miss_func", "miss_param", "long_context")


@pytest.fixture(scope="module")
def url():
    with running_service() as service:
        yield service.url


def named(name: str) -> str:
    return f"seal.rollout.harness=tests.support.harnesses:{name}"


@cache
def native_texts(task_id: str = TASK) -> tuple[str, ...]:
    """The messages of a policy that plays a task's reference in the format of the gateway."""
    turns, texts = BfclEnvironment().calls(load_tasks()[task_id]), []
    for calls in turns:
        texts += [FORMATS["hermes"].render_call(*call) for call in calls]
        texts.append("Done.")
    return tuple(texts)


def sampled(output) -> list[int]:
    return [token for token, kept in zip(output.response_ids, output.response_mask, strict=True) if kept]


def tokens(texts) -> list[int]:
    eos = tokenizer().eos_token_id
    return [token for text in texts for token in (*tokenizer().encode(text, add_special_tokens=False), eos)]


def turns(texts):
    """The messages of each turn, the answer last."""
    ends = [number + 1 for number, text in enumerate(texts) if text == "Done."]
    return [texts[start:end] for start, end in pairwise([0, *ends])]


@pytest.mark.parametrize("harness", [f"seal.rollout.harness={TEXT}", named("streaming")])
@pytest.mark.parametrize("training", [True, False])
def test_the_same_rollout_through_both_doors(url, tmp_path, harness, training):
    """A harness that plays the dialogue as text gives the tokens, labels and verdict of SEAL's own loop."""
    omega = Omega.of(["schema_required", "feedback_error", "use_tools"]).to_json() if training else None
    (own,) = roll_out([url], ScriptedEngine(reference_texts()), training=training, omega=omega)
    (other,) = roll_out(
        [url], ScriptedEngine(reference_texts()), harness, f"seal.run_dir={tmp_path}", training=training, omega=omega
    )
    assert outcome(other) == outcome(own)
    assert own[1].score == 1.0 and other[1].rewritten == 0


@pytest.mark.parametrize("harness", ["native", "over_mcp"])
@pytest.mark.parametrize("category", CATEGORIES)
def test_the_references_pass_with_native_calls(url, harness, category):
    task = f"multi_turn_{category}_1"
    ((output, record),) = roll_out(
        [url], ScriptedEngine(native_texts(task)), named(harness), *NATIVE, task_id=task, category=category
    )
    assert (record.infra, record.infra_message) == (None, "")
    assert (record.score, record.stop, record.rewritten) == (1.0, "completed", 0)
    assert sampled(output) == tokens(native_texts(task)), "what is trained is what was sampled, in one chain"


def reversed_calls(task_id: str) -> tuple[str, ...]:
    texts = native_texts(task_id)
    return (*texts[:2][::-1], *texts[2:])


WRONG = {
    "unreadable": (
        '<tool_call>\n{"name": "cd", "arguments": {"folder": "document"}\n</tool_call>',
        "invalid_tool_call",
    ),
    "no such tool": (FORMATS["hermes"].render_call("change_folder", {"folder": "document"}), "invalid_tool_call"),
    "wrong argument": (FORMATS["hermes"].render_call("cd", {"path": "document"}), "argument_mismatch"),
    "another effect": (FORMATS["hermes"].render_call("cd", {"folder": "temp"}), None),
    "no call": ("I have done it.", "missing_tool_call"),
}


@pytest.mark.parametrize("harness", ["native", "over_mcp"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_play_gets_the_label_that_it_has_in_seals_own_loop(url, wrong, harness):
    text, label = WRONG[wrong]
    engine = (text, *("Done.",) * 9)
    ((_, own),) = roll_out([url], ScriptedEngine(engine), *NATIVE)
    ((_, record),) = roll_out([url], ScriptedEngine(engine), named(harness), *NATIVE)
    assert record.infra is None and record.score == 0.0
    assert (record.labels, record.diagnosis) == (own.labels, own.diagnosis)
    assert label in (None, record.labels[0]), record.labels


def test_omega_reaches_the_policy_in_training_and_never_in_evaluation(url):
    omega = Omega.of(["schema_required", "feedback_error", "use_tools"]).to_json()
    texts = (FORMATS["hermes"].render_call("cd", {"folder": "nowhere"}), "Done.")
    seen = {}
    for training in (True, False):
        engine = ScriptedEngine(texts)
        ((_, record),) = roll_out([url], engine, named("native"), *NATIVE, training=training, omega=omega)
        assert record.infra is None
        seen[training] = [tokenizer().decode(prompt) for prompt in engine.prompts[:2]]
    (start, answered), plain = seen[True], seen[False]
    assert "# Notes on the tools" in start and "# Advice" in start
    assert answered.startswith(start) and len(answered) > len(start)
    cues = [text for text in plain if "# Notes on the tools" in text or "# Advice" in text]
    assert cues == [] and len(answered) - len(start) > len(plain[1]) - len(plain[0]), "the error has its feedback"


def test_a_note_before_an_answer_does_not_take_the_place_of_the_dialogue_that_earned_the_reward(url):
    texts = native_texts()
    notes = native_texts()[:1] * texts.count("Done.")
    for trained in ("all", "main"):
        settings = (*NATIVE, f"seal.rollout.trained={trained}")
        ((outputs, record),) = dialogues([url], ScriptedEngine(texts), named("noting"), *settings)
        assert (record.infra, record.score, record.unsampled_calls) == (None, 1.0, 0)
        assert (record.tokens, record.rewritten) == (len(tokens((*texts, *notes))), len(notes))
        assert [sampled(each) for each in outputs[:-1]] == [tokens(notes[:1])] * (len(outputs) - 1)
        assert sampled(outputs[-1]) == tokens(texts)
        if trained == "all":
            assert len(outputs) == 1 + len(notes) and record.trained_share == 1.0
        else:
            assert len(outputs) == 1 and record.trained_share == pytest.approx(len(tokens(texts)) / record.tokens)


@pytest.mark.parametrize("harness", ["native", "noting", "compacting", "choosing", "as_text", "prefilling"])
def test_each_sampled_token_is_trained_once_after_the_tokens_that_the_engine_saw(url, harness):
    ((outputs, record),) = dialogues([url], engine := ScriptedEngine(native_texts()), named(harness), *NATIVE)
    assert (record.infra, record.trained_share, record.rewritten) == (None, 1.0, len(outputs) - 1)
    asked = [tuple(prompt) for prompt in engine.prompts]
    trained = []
    for output in outputs:
        ids, start = [*output.prompt_ids, *output.response_ids], len(output.prompt_ids)
        own, logprobs = [0, *output.response_mask], [0.0, *output.response_logprobs]
        assert any(own) and all(bool(value) == bool(kept) for value, kept in zip(logprobs, own, strict=True))
        trained += [
            tuple(ids[: start + place])
            for place, (before, kept) in enumerate(pairwise(own))
            if kept and (not before or logprobs[place + 1] > logprobs[place])
        ]
    assert sorted(trained) == sorted(asked), "a message begins after the prompt of its request, each in one dialogue"
    assert sum(sum(output.response_mask) for output in outputs) == record.tokens


def test_a_branch_goes_on_from_the_tokens_that_it_shares_and_the_one_that_was_kept_is_the_main_one(url):
    texts, number = native_texts(), count()

    async def first_waits(_):
        pair, kept = divmod(asked := next(number), 2)
        ids = tokens([texts[pair] if kept else "Wait."])
        steps = {"min_global_steps": asked, "max_global_steps": asked}
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids), stop_reason="completed", extra_fields=steps)

    ((outputs, record),) = dialogues([url], ScriptedEngine((), first_waits), named("choosing"), *NATIVE)
    *others, main = outputs
    assert (record.infra, record.score, record.trained_share) == (None, 1.0, 1.0) and len(others) == len(texts)
    assert sampled(main) == tokens(texts) and [sampled(other) for other in others] == [tokens(["Wait."])] * len(others)
    assert record.weights == (0, 2 * len(texts) - 1), "the first message is in another dialogue than the last"
    whole = [*main.prompt_ids, *main.response_ids]
    for other in others:
        shared = other.response_mask.index(1)
        start = [*other.prompt_ids, *other.response_ids[:shared]]
        assert whole[: len(start)] == start and other.prompt_ids == main.prompt_ids


def test_a_rewritten_history_counts_as_context_of_the_response_and_not_as_a_longer_prompt(url):
    task = ("multi_turn_base_0",)
    ((whole, record),) = dialogues([url], ScriptedEngine(native_texts(*task)), named("as_text"), *NATIVE)
    longest = max(len(each.prompt_ids) for each in whole)
    assert record.infra is None and len({tuple(each.prompt_ids) for each in whole}) == 1
    limits = (f"data.max_prompt_length={longest}", "data.max_response_length=200")
    ((outputs, record),) = dialogues([url], ScriptedEngine(native_texts(*task)), named("as_text"), *NATIVE, *limits)
    assert (record.infra, record.stop, record.trained_share) == (None, "trajectory_length", 1.0)
    assert all(len(each.response_ids) <= 200 for each in outputs) and len(outputs) > 1


def test_an_answer_in_words_that_the_policy_did_not_use_is_not_cut_by_a_message_that_was(url):
    long = "It is polite, and it is as it should be, for all that I can see here."
    ((_, record),) = roll_out([url], ScriptedEngine((long,)), named("reworded"), *NATIVE)
    assert (record.infra, record.truncated) == (None, ()) and record.stop != "message_length"


@pytest.mark.parametrize(("harness", "shown"), [("adding", '{"name": "cd", '), ("amending", "NEW RULE")])
def test_a_tool_that_comes_later_or_changes_reaches_the_policy(url, harness, shown):
    ((_, record),) = roll_out([url], engine := ScriptedEngine(("Done.",)), named(harness), *NATIVE)
    prompts = [tokenizer().decode(prompt) for prompt in engine.prompts]
    assert record.infra is None and len(prompts) == record.turns
    assert shown not in prompts[0] and all(shown in prompt for prompt in prompts[1:])


def test_calls_that_the_policy_did_not_write_are_counted(url):
    own = {}
    for harness in ("native", "over_mcp", "javascript", "helping", "noting"):
        ((_, record),) = roll_out([url], ScriptedEngine(native_texts()), named(harness), *NATIVE)
        assert record.infra is None
        own[harness] = record.unsampled_calls
    assert own == {"native": 0, "over_mcp": 0, "javascript": 0, "noting": 0, "helping": record.turns}
    ((_, record),) = roll_out([url], ScriptedEngine(("mkdir('temp_dir')",)), named("in_code"), *NATIVE)
    assert (record.infra, record.calls, record.unsampled_calls) == (None, record.turns, 0)


def test_a_history_that_is_rewritten_starts_a_new_chain_and_one_that_reached_the_episode_is_trained(url):
    texts = native_texts()
    ((output, record),) = roll_out([url], engine := ScriptedEngine(texts), named("compacting"), *NATIVE)
    assert (record.infra, record.rewritten) == (None, record.turns - 1)
    assert record.tokens_in == sum(map(len, engine.prompts))
    # Each chain is a request of its own to the engine, which begins its script again.
    assert sampled(output) and tokens(texts)[: len(sampled(output))] == sampled(output)


@pytest.mark.parametrize(
    ("stop", "harness", "texts", "overrides"),
    [
        ("max_steps", "native", native_texts(), ["seal.rollout.max_steps=3"]),
        ("max_steps", "compacting", native_texts(), ["seal.rollout.max_steps=6"]),
        ("message_length", "native", ("<tool_call>" + " sort" * 400,), ["seal.rollout.max_message_tokens=16"]),
        ("message_length", "short", native_texts(), []),
        ("trajectory_length", "native", native_texts(), ["data.max_response_length=150"]),
        ("trajectory_length", "insisting", native_texts(), ["data.max_response_length=150"]),
    ],
)
def test_a_budget_is_the_policys_own_end_and_no_fault_of_the_harness(url, stop, harness, texts, overrides):
    ((output, record),) = roll_out([url], ScriptedEngine(texts), named(harness), *NATIVE, *overrides)
    assert (record.infra, record.stop, record.score) == (None, stop, 0.0)
    assert sampled(output) and record.labels[-1:] != ("pass",)


def test_a_budget_that_a_new_dialogue_meets_first_leaves_the_one_before_to_be_trained(url):
    first = native_texts()[: native_texts().index("Done.") + 1]
    budget = f"seal.rollout.max_steps={len(first)}"
    ((output, record),) = roll_out([url], ScriptedEngine(native_texts()), named("compacting"), *NATIVE, budget)
    assert (record.infra, record.stop, record.score, record.labels) == (None, "max_steps", 0.0, ("pass",))
    assert sampled(output) == tokens(first)


@pytest.mark.parametrize("key", ["actor_rollout_ref.actor.ppo_max_token_len_per_gpu", "data.max_response_length"])
def test_a_harness_that_asks_again_after_a_cut_stays_within_the_budget(url, key):
    """The token that closes a cut message needs room like any other."""
    most = 1024 if "actor" in key else 100
    long = ("<tool_call>" + " sort" * 2000,)
    ((output, record),) = roll_out([url], ScriptedEngine(long), named("repeating"), *NATIVE, f"{key}={most}")
    assert record.infra is None and sum(output.response_mask) == record.tokens > 0
    length = len(output.response_ids) + ("actor" in key) * len(output.prompt_ids)
    assert length == most


@pytest.mark.parametrize(
    ("harness", "cause", "sentence"),
    [
        (named("raising"), "harness", "ZeroDivisionError: of the harness"),
        (named("exiting"), "harness", "it exited with 3"),
        (named("doubling"), "harness", "One answer for each message"),
        (named("doubling_at_once"), "harness", "One answer for each message"),
        (named("doubling_over_mcp"), "harness", "One answer for each message"),
        (named("leaving"), "harness", "left before the conversation ended"),
        (named("refusing"), "harness", "never asked the policy"),
        (named("giving_up_at_once"), "harness", "no index of the shop"),
        (named("hanging"), "harness_timeout", "waiting for the harness"),
        (named("flooding"), "harness", "more than 2000 requests"),
        (
            f"seal.rollout.harness=[{sys.executable},-c,\"print('x' * 70_000); print('to its log'); exit(7)\"]",
            "harness",
            "to its log",
        ),
    ],
)
def test_a_failure_of_the_harness_is_one_of_infrastructure(url, tmp_path, harness, cause, sentence):
    deadline = 2 if cause == "harness_timeout" else 300
    ((output, record),) = roll_out(
        [url],
        ScriptedEngine(("Done.",)),
        harness,
        "seal.rollout.attempts=1",
        f"seal.rollout.deadline_s={deadline}",
        f"seal.run_dir={tmp_path}",
    )
    assert (
        record.infra == cause and cause in get_args(Cause) and cause not in FATAL and sentence in record.infra_message
    )
    assert not record.labels and sampled(output) == []


@pytest.mark.parametrize(
    ("harness", "setting", "infra", "stop"),
    [
        ("judging", "lost", None, "failed"),
        ("raising_later", "failed", None, "failed"),
        ("raising_later", "lost", "harness", ""),
        ("raising", "failed", "harness", ""),
        ("demanding", "failed", "harness", ""),  # what the gateway refuses is the harness's own wish
    ],
)
def test_a_message_that_a_harness_cannot_use_may_be_the_policys_failure(url, harness, setting, infra, stop):
    settings = (*NATIVE, f"seal.rollout.harness_failure={setting}")
    ((output, record),) = roll_out([url], ScriptedEngine(("Done.",)), named(harness), *settings)
    assert (record.infra, record.stop, record.score) == (infra, stop, 0.0)
    assert record.infra_message and sampled(output) == ([] if infra else tokens(["Done."]))


class Stalling(TrialPolicy):
    """A policy whose second message in a dialogue does not come."""

    async def say(self, dialogue, most=None):
        await asyncio.sleep(60 if self.stream.sampled else 0.3)
        return await super().say(dialogue, most)


@pytest.mark.parametrize(
    ("harness", "policy", "words"),
    [
        ("hasty", Stalling, "APITimeoutError"),
        ("guarding", Stalling, "APITimeoutError"),
        ("remembering", TrialPolicy, "NotFound"),
        ("pressing", TrialPolicy, "TimeoutError"),
    ],
)
def test_leaving_without_the_gateways_answer_is_no_failure_of_the_policy(tmp_path, harness, policy, words):
    async def played():
        asked = Policy(lambda _: policy(FORMATS["hermes"]), "hermes", None, "main")
        speaker = HarnessSpeaker(f"tests.support.harnesses:{harness}", 60, asked, tmp_path / "log", failed=True)
        native = {"tools": [[]], "instructions": "", "cues": ""}
        dialogue = Dialogue(messages=[{"role": "user", "content": "u"}], info={"native": native})
        try:
            while said := await speaker.say(dialogue):
                await asyncio.sleep(0.5 * ("<tool_call>" in said.text))  # as a service under load
                answer = {"role": "assistant", "content": said.text}
                dialogue.messages = [*dialogue.messages, answer, {"role": "user", "content": "u"}]
        finally:
            await speaker.close(dialogue)

    with pytest.raises(SpeakerFault, match=words) as fault:
        asyncio.run(played())
    assert fault.value.cause == "harness"


@pytest.mark.parametrize(("harness", "infra", "stop"), [("puzzled", "harness", ""), ("puzzled_aloud", None, "failed")])
def test_words_of_a_harness_that_are_no_text_can_be_logged(url, tmp_path, harness, infra, stop):
    ((_, record),) = roll_out([url], ScriptedEngine(("Done.",)), named(harness), *NATIVE)
    assert (record.infra, record.stop) == (infra, stop)
    write_jsonl([record.line()], log := tmp_path / "1.jsonl")
    assert "no such city: ?" in TrajectoryRecord.from_json(log.read_text(encoding="utf-8")).infra_message


def test_a_harness_whose_first_request_leaves_no_room_is_not_said_to_have_asked_nothing(url):
    limit = "data.max_response_length=100"
    ((_, record),) = roll_out([url], ScriptedEngine(("Done.",)), named("showing"), *NATIVE, limit)
    assert record.infra == "harness" and "trajectory_length" in record.infra_message
    ((_, record),) = roll_out([url], ScriptedEngine(("Done.",)), named("showing"), *NATIVE)
    assert record.infra is None


def test_a_record_says_how_often_its_rollout_was_started(url):
    asked = []

    async def aborts_once(number):
        asked.append(number)
        if len(asked) == 1:
            return TokenOutput(token_ids=[1], log_probs=[-1.0], stop_reason="aborted")

    settings = (*NATIVE, "seal.rollout.attempts=3")
    ((_, record),) = roll_out([url], ScriptedEngine(native_texts(), aborts_once), named("native"), *settings)
    assert (record.infra, record.score, record.attempts) == (None, 1.0, 2)


def test_a_command_sees_no_secret_that_the_recipe_does_not_name(url, tmp_path, monkeypatch):
    for name in ("HF_TOKEN", "BFCL_TOKEN", "OPENAI_ORG_ID", "MY_INDEX"):
        monkeypatch.setenv(name, "there")
    command = f"[{sys.executable},-c,'import os; print(sorted(os.environ)); exit(7)']"
    ((_, record),) = roll_out(
        [url],
        ScriptedEngine(("Done.",)),
        f'seal.rollout.harness="{command}"'.replace('"', ""),
        "seal.rollout.harness_env=[MY_INDEX]",
        "seal.rollout.attempts=1",
        f"seal.run_dir={tmp_path}",
    )
    (log,) = tmp_path.rglob("*.log")
    seen = set(literal_eval(log.read_text()))
    assert record.infra == "harness" and {"PATH", "MY_INDEX", "OPENAI_API_BASE", "SEAL_TASK_URL"} <= seen
    assert not seen & {"HF_TOKEN", "BFCL_TOKEN", "OPENAI_ORG_ID"}


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            "TypeError: earlier\nTypeError: no agent\n    at run (a.mjs:3:1) {\n  code: 3\n}\n\nNode.js v20.20.2\n",
            "TypeError: no agent",
        ),
        ("all is well\nKeyError: 'x'\n\n", "KeyError: 'x'"),
        (
            'Traceback (most recent call last):\n  File "a.py", line 1\n    run()\nValueError: no\nDuring task 1\n',
            "ValueError: no",
        ),
        ('Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no\nI\ngo\non\n.\n', "."),
        ("", "no output"),
        (
            "  | ExceptionGroup: a (1 sub-exception)\n  +-+---- 1 ----\n    | KeyError: 'x'\n    +--------\n",
            "KeyError: 'x'",
        ),
    ],
)
def test_the_cause_of_an_exit_is_what_the_program_says_about_it(output, words):
    assert last_words(output) == words


@pytest.mark.parametrize(
    "harness",
    ["[/nowhere/agent]", "[]", "run", "nowhere:run", "json:nothing", "json:loads", "broken:run", "keyless:run"],
)
def test_a_harness_that_is_not_there_is_refused_when_the_recipe_is_read(harness, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("async def run(task) pass")
    (tmp_path / "keyless.py").write_text("import os\nos.environ['NO_KEY_OF_ANYBODY']")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(LaunchError, match=r"seal\.rollout\.harness: the harness.*[^.]\.$"):
        configured(["http://127.0.0.1:1"], f"seal.rollout.harness={harness}")


@pytest.mark.parametrize(("harness", "read"), [("beside_me:run", "beside_me:run"), ("[./agent]", ["./agent"])])
def test_a_recipes_harness_is_sought_where_a_run_works(harness, read, tmp_path, monkeypatch):
    (tmp_path / "beside_me.py").write_text("async def run(task): ...")
    (tmp_path / "agent").write_text("#!/bin/sh")
    (tmp_path / "agent").chmod(0o700)
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as here:
        here.setattr(sys, "path", [*sys.path])
        require_harness(read)
    sys.modules.pop("beside_me", None)
    with pytest.raises(LaunchError, match=r"seal\.rollout\.harness: the harness"):
        configured(["http://127.0.0.1:1"], f"seal.rollout.harness={harness}")


def test_an_answer_that_was_given_up_is_no_later_calls(url):
    ((_, record),) = roll_out([url], ScriptedEngine(native_texts()), named("giving_up"), *NATIVE)
    assert record.infra is None
    called = [call for turn in record.evidence for action in turn["actions"] for call in action["calls"]]
    assert len(called) > 2 and record.errors == sum(call["name"].startswith("nothing_") for call in called)


def test_a_harness_that_stays_after_the_end_is_ended_and_its_rollout_counts(url):
    ((_, record),) = roll_out([url], ScriptedEngine(native_texts()), named("staying"), *NATIVE)
    assert (record.infra, record.score) == (None, 1.0)


def test_what_a_harness_asks_after_the_end_is_no_part_of_the_rollout(url):
    ((output, record),) = roll_out([url], ScriptedEngine(native_texts()), named("summarising"), *NATIVE)
    assert (record.infra, record.score) == (None, 1.0) and sampled(output) == tokens(native_texts())


@pytest.mark.parametrize(("harness", "rewritten"), [("javascript", 0), ("prefilling", 1)])
def test_a_history_in_another_form_continues_the_dialogue_and_a_message_that_was_not_sampled_does_not(
    url, harness, rewritten
):
    texts = ('<tool_call>{"name": "cd", "arguments": {"folder": 57.0}}</tool_call>', "Done.")
    ((output, record),) = roll_out([url], ScriptedEngine(texts * 9), named(harness), *NATIVE)
    assert record.infra is None and bool(record.rewritten) == bool(rewritten) and sampled(output)


FIRST_ONLY = (
    "{% for message in messages %}{% if message.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}{% endfor %}"
)


@pytest.mark.parametrize("strict", [False, True])
def test_a_history_that_the_models_template_refuses_costs_its_rollout_and_not_the_run(url, strict):
    """Qwen3.5's template takes a system message only at the beginning; SDKs send reminders later too."""
    own = deepcopy(tokenizer())
    own.chat_template = FIRST_ONLY * strict + own.chat_template
    ((output, record),) = roll_out([url], ScriptedEngine(native_texts(), None, own), named("reminding"), *NATIVE)
    if not strict:
        assert (record.infra, record.score, record.rewritten) == (None, 1.0, 0)
        return
    assert record.infra == "harness" and sampled(output) == []
    assert "System message must be at the beginning." in record.infra_message


PARALLEL = ("\n".join(FORMATS["hermes"].render_call(name, {}) for name in ("ls", "pwd")), "Done.")


def test_tool_answers_reach_the_policy_in_the_order_of_their_calls(url):
    prompts = []
    for harness in ("native", "unordered"):
        engine = ScriptedEngine(PARALLEL)
        ((_, record),) = roll_out([url], engine, named(harness), *NATIVE)
        assert record.infra is None and record.calls >= 2
        prompts.append(engine.prompts)
    assert prompts[0] == prompts[1]


@pytest.mark.parametrize("harness", ["unordered", "at_once", "at_once_over_mcp"])
def test_calls_that_an_sdk_makes_at_once_are_played_in_the_order_of_their_message(url, harness):
    texts = tuple("\n".join(turn) for turn in turns(native_texts()) for turn in (turn[:-1], turn[-1:]))
    ((output, record),) = roll_out([url], ScriptedEngine(texts), named(harness), *NATIVE)
    assert (record.infra, record.score, record.unsampled_calls) == (None, 1.0, 0)
    assert sampled(output) == tokens(texts)


def test_a_call_that_an_sdk_refuses_keeps_the_others_neither_back_nor_out_of_order(url):
    calls = ("ls", {}), ("pwd", {}), ("cd", {"folder": "document"})
    text = "\n".join(FORMATS["hermes"].render_call(*call) for call in calls)
    ((_, record),) = roll_out([url], ScriptedEngine((text, "Done.")), named("choosy"), *NATIVE)
    made = [call["name"] for action in record.evidence[0]["actions"] for call in action["calls"]]
    assert record.infra is None and made == ["pwd", "cd"]


def test_a_tool_that_the_policy_invents_is_its_own_fault(url):
    ((_, record),) = roll_out(
        [url], ScriptedEngine((WRONG["no such tool"][0], *("Done.",) * 9)), named("strict"), *NATIVE
    )
    assert record.infra is None and record.labels[0] == "invalid_tool_call"


def test_an_answer_of_the_policy_that_is_no_text_is_its_own_fault(url):
    asked = ({}, {"answer": 42}, {"answer": "Done."})
    texts = tuple(FORMATS["hermes"].render_call(USER, given) for given in asked)
    ((output, record),) = roll_out([url], ScriptedEngine(texts), named("by_its_policy"), *NATIVE)
    assert (record.infra, record.stop) == (None, "completed")
    assert sampled(output)[: len(told := tokens(texts))] == told and "42" not in str(record.messages)


def test_a_request_that_the_client_repeats_is_answered_once(url):
    async def slow(number):
        if number == 3:
            await asyncio.sleep(1.5)

    texts = native_texts()
    ((output, record),) = roll_out([url], engine := ScriptedEngine(texts, slow), named("impatient"), *NATIVE)
    assert (record.infra, record.score, record.rewritten) == (None, 1.0, 0)
    assert sampled(output) == tokens(texts) and len(engine.prompts) == len(texts)


def test_a_history_without_its_thoughts_continues_the_dialogue(url):
    texts = [text if text != "Done." else "<think>\nHm.\n</think>\n\nDone." for text in native_texts()]
    ((output, record),) = roll_out([url], ScriptedEngine(texts), named("thoughtless"), *NATIVE)
    assert (record.infra, record.score, record.rewritten) == (None, 1.0, 0) and sampled(output) == tokens(texts)


def test_another_dialogue_does_not_cut_an_answer(url):
    ((_, record),) = roll_out([url], ScriptedEngine(native_texts()), named("guarded"), *NATIVE)
    assert (record.infra, record.stop, record.score) == (None, "completed", 1.0)


def test_a_message_that_the_end_finds_under_way_is_no_part_of_the_rollout(url):
    texts, begun = native_texts(), []

    async def slow(number):
        begun.append(number == 1)
        if number == 1 and sum(begun) == 1 + texts.count("Done."):  # the title in the last turn
            await asyncio.sleep(9)

    ((output, record),) = roll_out([url], ScriptedEngine(texts, slow), named("wandering"), *NATIVE)
    assert (record.infra, record.score) == (None, 1.0) and sampled(output) == tokens(texts)


def test_an_empty_answer_of_a_tool_is_no_end():
    async def played():
        native = {"tools": [[]], "instructions": "", "cues": ""}
        dialogue = Dialogue(messages=[{"role": "user", "content": "u"}], info={"native": native})
        task = Task(dialogue, Address("", "", ""), "", 9)
        answer = asyncio.create_task(task.call("touch", {}))
        await task.events.get()
        result = {"role": "user", "content": "<tool_response>\n\n</tool_response>"}
        dialogue.messages = [*dialogue.messages, {"role": "assistant", "content": ""}, result]
        task.hear(dialogue, ended=False)
        return await answer

    assert asyncio.run(played()) == ""


def test_an_answer_beside_a_call_waits_for_the_call():
    """A policy that has the user as a tool may answer in the message that calls another tool."""

    async def played():
        native = {"tools": [[]], "instructions": "", "cues": ""}
        dialogue = Dialogue(messages=[{"role": "user", "content": "u"}], info={"native": native})
        task, kinds = Task(dialogue, Address("", "", ""), "", 9), []
        assert await task.next_user_message(None) == "u"
        both = asyncio.gather(task.call("touch", {}), task.next_user_message("Done."))
        for follows in ("<tool_response>\nmade\n</tool_response>", "And now?"):
            kinds.append((await task.events.get()).kind)
            new = ({"role": "assistant", "content": ""}, {"role": "user", "content": follows})
            dialogue.messages = [*dialogue.messages, *new]
            task.hear(dialogue, ended=False)
        return kinds, await both

    assert asyncio.run(played()) == (["call", "message"], ["made", "And now?"])


def test_a_fault_of_the_engine_keeps_its_own_cause(url):
    async def aborted(number):
        engine = ScriptedEngine(("Done.",))
        answer = await engine.generate("x", prompt_ids=[], sampling_params={"max_tokens": 9})
        answer.stop_reason = "aborted"
        return answer

    ((_, record),) = roll_out([url], ScriptedEngine((), aborted), named("native"), *NATIVE)
    assert record.infra == "engine_aborted"


def test_what_is_no_text_is_refused_and_ends_nothing(url):
    ((_, record),) = roll_out([url], ScriptedEngine(native_texts()), named("odd"), *NATIVE)
    assert (record.infra, record.score) == (None, 1.0)


def test_many_rollouts_at_once_keep_to_themselves(url):
    played = roll_out([url], ScriptedEngine(native_texts()), named("native"), *NATIVE, trajectories=16)
    assert {outcome(each)[2][0] for each in played} == {1.0}
    assert all(sampled(output) == tokens(native_texts()) for output, _ in played)


def test_a_lesson_needs_seals_own_loop():
    config = OmegaConf.to_container(configured(["http://127.0.0.1:1"]), resolve=True)
    config["seal"]["rollout"]["harness"] = "my_agents:run"
    assert SealSettings.of(config).rollout.harness == "my_agents:run"
    config["seal"]["interface"] |= {"teacher": "share", "share": 0.5}
    with pytest.raises(SettingsError, match="no harness runs"):
        SealSettings.of(config)
