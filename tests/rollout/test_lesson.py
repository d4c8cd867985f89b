"""Lessons of rollouts with cues (`seal.interface.teacher`), through the real agent loop and service."""

import pytest

from seal.method.interface.cues import catalogue
from seal.rollout.lesson import Lesson
from seal.rollout.row import Row
from seal.rollout.speaker import SpeakerFault
from seal.settings import EnvServiceSettings
from seal.settings.interface import InterfaceSettings
from seal.settings.sentences import SettingsError
from tests.support.rollout_play import ScriptedEngine, reference_texts, roll_out, tokenizer

OMEGA = {"version": 3, "cues": {"*": [name for name in catalogue() if catalogue()[name].taxonomy is None]}}
SHARE = ("seal.interface.share=0.5", "seal.interface.teacher=share")
RETRY = ("seal.interface.share=0.5", "seal.interface.teacher=retry")
WRONG = '<tool_call>{"name":"no_such_tool","arguments":{}}</tool_call>'


def sampled(output) -> list[int]:
    return [token for token, kept in zip(output.response_ids, output.response_mask, strict=True) if kept]


def shown(output) -> str:
    """All that the policy is trained with, without what it said."""
    context = [token for token, kept in zip(output.response_ids, output.response_mask, strict=True) if not kept]
    return tokenizer().decode(output.prompt_ids + context)


def of_kind(played, taught: bool):
    return [pair for pair in played if pair[1].taught is taught]


def test_a_success_with_cues_is_trained_as_if_it_had_been_said_without_them(url):
    played = roll_out([url], ScriptedEngine(reference_texts()), *SHARE, omega=OMEGA, trajectories=8)
    off = roll_out([url], ScriptedEngine(reference_texts()), "seal.interface.share=0.5", omega=OMEGA, trajectories=8)
    assert [record.taught for _, record in played] == [False, True] * 4
    plain = off[0][0]
    for output, record in of_kind(played, True):
        assert record.cues and record.messages == off[1][1].messages, "the log keeps the dialogue with the cues"
        assert (output.prompt_ids, output.response_ids) == (plain.prompt_ids, plain.response_ids)
        assert sampled(output) == sampled(off[1][0]) and not record.silent
    for (output, _), (other, _) in zip(of_kind(played, False), off[::2], strict=True):
        assert output.prompt_ids + output.response_ids == other.prompt_ids + other.response_ids


def test_nothing_that_cues_say_stands_in_a_lesson(url):
    """The policy errs once, so that cues speak in the system text and in an answer."""
    texts = [WRONG, *reference_texts()]
    played = roll_out([url], ScriptedEngine(texts), *SHARE, omega=OMEGA, trajectories=2)
    ((_, told),) = [pair for pair in played if pair[1].cues]
    assert "Required:" in told.messages[0]["content"] and "is not an available tool" in str(told.messages)
    for output, _ in of_kind(played, True):
        for words in ("Required:", "is not an available tool", *(cue.compact for cue in catalogue().values())):
            assert not words or "{" in words or words not in shown(output)


def test_a_lesson_leaves_out_the_call_that_failed(url):
    played = roll_out([url], ScriptedEngine([WRONG, *reference_texts()]), *SHARE, omega=OMEGA, trajectories=2)
    ((output, record),) = of_kind(played, True)
    said = tokenizer().decode(sampled(output))
    assert "no_such_tool" not in said and said.startswith(reference_texts()[0])
    assert "no_such_tool" in shown(output) and record.errors == 1


@pytest.mark.parametrize(("faults", "infra"), [(1, None), (2, "engine")])
def test_a_lesson_is_played_again_and_a_rollout_without_its_lesson_is_lost(url, monkeypatch, faults, infra):
    left = [faults]
    say = Lesson.say

    async def fails(self, dialogue):
        if left[0]:
            left[0] -= 1
            raise SpeakerFault("engine", "the line was cut")
        return await say(self, dialogue)

    monkeypatch.setattr(Lesson, "say", fails)
    played = roll_out([url], ScriptedEngine(reference_texts()), *SHARE, omega=OMEGA, trajectories=2)
    record = played[1][1]
    assert (record.infra, record.taught, record.usable) == (infra, infra is None, infra is None)
    assert infra is None or record.infra_message == "the lesson was lost: the line was cut"


def test_what_does_not_pass_without_cues_is_not_trained(url):
    """An unreadable call ends the turn in the plain episode; with cues feedback answers it and the policy goes on."""
    broken = "<tool_call>{"
    played = roll_out([url], ScriptedEngine([broken, *reference_texts()]), *SHARE, omega=OMEGA, trajectories=8)
    cued = [pair for pair in played if pair[1].cues]
    assert cued and all(record.passed and record.silent and not record.taught for _, record in cued)


def test_a_failure_with_cues_is_in_the_baseline_and_has_no_gradient(url):
    played = roll_out([url], ScriptedEngine(["I cannot."]), *SHARE, omega=OMEGA, trajectories=8)
    assert [record.silent for _, record in played] == [False, True] * 4
    assert all(record.usable for _, record in played)


def test_an_interface_without_cues_teaches_nothing(url):
    empty = {"version": 1, "cues": {}}
    for teacher in (SHARE, RETRY):
        played = roll_out([url], ScriptedEngine(["I cannot."]), *teacher, omega=empty, trajectories=8)
        off = roll_out([url], ScriptedEngine(["I cannot."]), "seal.interface.enabled=false", trajectories=8)
        for (output, record), (other, _) in zip(played, off, strict=True):
            assert output.prompt_ids + output.response_ids == other.prompt_ids + other.response_ids
            assert not record.silent and not record.taught and record.omega_version is None


def test_where_no_plain_rollout_passes_retries_see_the_documents_of_the_tools_that_were_called_wrongly(url):
    wrong = '<tool_call>{"name":"cp","arguments":{"source":"a"}}</tool_call>'
    passing = roll_out([url], ScriptedEngine([wrong, *reference_texts()]), *RETRY, omega=OMEGA, trajectories=8)
    assert not any(record.cues for _, record in passing)
    unread = roll_out([url], ScriptedEngine([WRONG, "Done."]), *RETRY, omega=OMEGA, trajectories=8)
    assert not any(record.cues for _, record in unread), "a tool that does not exist has no document"
    seen = {}
    for entries in ("own", "other", "all"):
        chosen = (*RETRY, f"seal.interface.entries={entries}")
        played = roll_out([url], ScriptedEngine([wrong, "Done."]), *chosen, omega=OMEGA, trajectories=8)
        # Plain ones, retries, and the last retry, which stays plain to measure the lift of the others.
        assert [bool(record.cues) for _, record in played] == [False, True] * 3 + [False, False]
        texts = {record.messages[0]["content"].partition("Required: ")[2] for _, record in played if record.cues}
        (text,) = texts
        seen[entries] = {entry.split()[0] for entry in text.splitlines()[0].split("; ")}
        assert all((record.documents is None) == (entries == "all") for _, record in played if record.cues)
    assert seen["own"] == {"cp"} and len(seen["other"]) == 1 and seen["other"] < seen["all"] - {"cp"}


def test_a_plain_rollout_that_breaks_off_keeps_no_retry_waiting(url):
    async def dies(number):
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        roll_out([url], ScriptedEngine((), dies), *RETRY, omega=OMEGA, trajectories=8)


def test_the_leak_guard_watches_whatever_may_become_a_lesson():
    row = {
        "extra_info": {"task_id": "t", "split": "train", "category": "base"},
        **{"data_source": "base", "global_steps": 1, "index": 0, "training": True, "omega": OMEGA},
    }
    rows = [Row.read(row | {"session_id": sample}, EnvServiceSettings()) for sample in range(4000)]
    asked = ([each.create_params(always) for each in rows] for always in (False, True))
    watched = [[params["leak_guard"] for params in each] for each in asked]
    assert all(watched[1]) and sum(watched[0]) == 190, "5 % of the others, drawn by step, row and sample"


def test_a_teacher_needs_plain_rollouts():
    with pytest.raises(SettingsError, match=r"seal\.interface\.share below 1"):
        InterfaceSettings.read({"teacher": "retry"}, "seal.interface")
