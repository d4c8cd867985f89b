"""Reference dialogues: the text of the service's episodes, mistakes answered and corrected."""

import random
from dataclasses import replace

import pytest

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.formats import get_format
from seal.interface.cues import Omega
from shelf.testbed.policy.dialogue import (
    Mistake,
    open_episode,
    parsed,
    play,
    reference_passes,
    slip_text,
    tool_names,
)
from shelf.testbed.policy.tokenizer import DialogueEncoder, train_tokenizer
from shelf.testbed.policy.warm_start import collate
from shelf.testbed.synthesis.path import PathCall
from shelf.testbed.synthesis.verify import passes
from tests.support.references import play_reference

TASKS = ("multi_turn_base_0", "multi_turn_miss_func_103", "multi_turn_miss_param_162", "multi_turn_long_context_36")


@pytest.mark.parametrize("task_id", TASKS)
def test_replaying_the_assistants_side_gives_the_same_dialogue_and_a_valid_episode(task_id):
    task = load_tasks()[task_id]
    omega = Omega.of(["schema_required", "feedback_error", "caution"])
    calls = parsed(task.reference)
    slip = Mistake(0, 0, "ls", get_format("compact").render_call("ls", {"folder": "x"})) if calls[0] else None
    for played, shown in ((play_reference(task), None), (play(task, calls, omega, slip), omega)):
        episode = open_episode(task, shown)
        messages = [{"role": m["role"], "content": m["content"]} for m in episode.start()["state"]]
        for message in played.messages[2:]:
            if message["role"] == "assistant":
                answer = episode.step(message["content"], truncated=False)
                messages.append(dict(message))
                if not answer["is_terminated"]:
                    messages += [{"role": m["role"], "content": m["content"]} for m in answer["state"]]
        assert messages == list(played.messages)
        assert answer["is_terminated"] and answer["reward"] == 1.0


def test_cues_stand_in_training_dialogues_only():
    task = load_tasks()["multi_turn_base_0"]
    plain, cued = play_reference(task), play_reference(task, Omega.of(["schema_required"]))
    assert play_reference(task, Omega()).messages == plain.messages
    assert cued.messages[0]["content"].startswith(plain.messages[0]["content"] + "\n")
    assert cued.messages[1:] == plain.messages[1:]


def test_a_slip_is_answered_by_an_error_corrected_and_not_learnt():
    task = load_tasks()["multi_turn_base_0"]
    calls = parsed(task.reference)
    texts = [message["content"] for message in play_reference(task).messages]
    tokenizer = train_tokenizer(texts, tool_names(), vocab_size=512, context=2048)
    played = play(
        task, calls, Omega(), Mistake(0, 1, "mkdir", get_format("compact").render_call("mkdir", {"name": "a"}))
    )
    (slip,) = played.slips
    wrong, answer, corrected = (message["content"] for message in played.messages[slip : slip + 3])
    assert wrong != corrected and corrected in texts and "rror" in answer
    encoded = DialogueEncoder(tokenizer).encode(played.messages, played.slips)
    (start, stop) = encoded.slips[0]
    assert tokenizer.decode(list(encoded.ids[start:stop])) == wrong + "<|im_end|>"
    assert not any(encoded.spoken[start:stop])
    weights = collate([encoded], other_weight=0.2)[1][0]
    assert (weights[start:stop] == 0).all() and (weights[:start] > 0).all() and (weights[stop:] > 0).all()


def test_a_slip_that_works_or_spoils_the_outcome_gives_no_dialogue():
    task = load_tasks()["multi_turn_base_0"]
    for name, arguments in (("pwd", {}), ("mkdir", {"dir_name": "new"})):
        slip = Mistake(0, 0, name, get_format("compact").render_call(name, arguments))
        assert play(task, parsed(task.reference), Omega(), slip) is None


def test_slips_are_of_every_kind():
    call = PathCall("cp", {"source": "a.txt", "destination": "b"})
    slips = {slip_text(call, ("mv", "ls"), random.Random(seed)) for seed in range(60)}
    read = [(tool, get_format("compact").parse(text)) for tool, text in slips]
    assert any(item.refusals for _, item in read)
    assert all(item.calls[0][0] == tool for tool, item in read if item.calls)
    calls = [item.calls[0] for _, item in read if item.calls]
    assert {"mv", "ls"} <= {name for name, _ in calls}
    assert any(len(arguments) == 1 for _, arguments in calls)


def test_the_verdict_judges_a_variant_by_its_own_reference():
    task = load_tasks()["multi_turn_base_103"]
    other = replace(task, reference=(*task.reference[:-1], ("get_stock_info(symbol='NVDA')",)))
    assert reference_passes(task) and reference_passes(other)
    assert not passes(other, [[]])
    assert not passes(task, [[] for _ in task.reference])
