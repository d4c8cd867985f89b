"""Psi on the environment's own episodes: mistakes in one turn, and the label that the turn gets."""

import pytest

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.tools import parse_reference
from seal.method.interface.cues import Omega, catalogue
from shelf.authoring.runs import open_episode

STYLE = get_format("compact")
FULL = Omega.of(list(catalogue()))


def say(name, /, **arguments):
    return STYLE.render_call(name, arguments)


def reference(task, turn):
    return [STYLE.render_call(*parse_reference(call)) for call in task.reference[turn]]


def play(task_id, turn, messages, omega=FULL, **settings):
    """The reference up to ``turn``, then these messages, then the reference; a text ends each turn. The labels."""
    task = load_tasks()[task_id]
    settings = {"split": "train", "omega": omega.to_json(), "tool_prompt_mode": "compact", **settings}
    episode = open_episode(task, settings)
    episode.start()
    answers = []
    for index in range(len(task.reference)):
        for message in [*(messages if index == turn else reference(task, index)), "Done."]:
            answer = episode.step(message, truncated=False)
            answers += [item["content"] for item in answer["state"]]
            if answer["is_terminated"]:
                return episode.evaluate({}), answers
    raise AssertionError("the episode did not end")


BASE, MISS_FUNC, DIFF = "multi_turn_base_0", "multi_turn_miss_func_0", "multi_turn_base_13"
CD, MKDIR = say("cd", folder="document"), say("mkdir", dir_name="temp")
MV = say("mv", source="final_report.pdf", destination="temp")


@pytest.mark.parametrize(
    ("task_id", "turn", "messages", "label"),
    [
        (BASE, 0, [CD, MKDIR, MV], "pass"),
        (BASE, 0, [CD, "<tool_call>{</tool_call>", MKDIR, MV], "pass"),
        (BASE, 0, [CD, "<tool_call>{</tool_call>"], "invalid_tool_call"),
        (BASE, 0, [CD, say("move", source="a"), MKDIR], "invalid_tool_call"),
        (BASE, 0, [CD, say("mkdir", name="temp"), MKDIR], "argument_mismatch"),
        (BASE, 0, [CD, MKDIR], "state_mismatch"),
        (BASE, 0, [CD, MKDIR, say("mv", source="nothing.pdf", destination="temp")], "state_mismatch"),
        (BASE, 0, [say("cd", folder="nowhere")], "recovery_failure"),
        (BASE, 0, [say("mv", source="final_report.pdf", destination="temp"), say("ls")], "recovery_failure"),
        (BASE, 0, [], "missing_tool_call"),
        (BASE, 0, [CD, say("ls"), say("pwd")], "missing_tool_call"),
        (BASE, 0, ['I go there.\n```json\n{"name": "cd", "arguments": {}}\n```'], "invalid_tool_call"),
        (DIFF, 1, [say("cat", file_name="report.txt"), say("cat", file_name="summary.txt")], "missing_tool_call"),
        (DIFF, 1, [say("diff", file_name1="summary.txt", file_name2="summary.txt")], "response_mismatch"),
        (MISS_FUNC, 2, [], "correct_abstention"),
        (MISS_FUNC, 2, [say("ls")], "spurious_tool_call"),
        (MISS_FUNC, 2, [say("sort", file_name="final_report.pdf")], "invalid_tool_call"),
        (MISS_FUNC, 2, ["cd('document')"], "invalid_tool_call"),
    ],
)
def test_the_label_of_a_turn(task_id, turn, messages, label):
    result, _ = play(task_id, turn, messages)
    assert result["labels"][turn] == label, result["diagnosis"][turn]


def test_feedback_reaches_the_policy_where_the_error_was():
    _, answers = play(BASE, 0, [CD, say("move", source="a"), say("mkdir", name="temp"), MKDIR, MV])
    assert "move is not an available tool. Tools: mv" in answers[1]
    assert "Required: mkdir dir_name; name is not an argument of this tool. Error 2 in a row" in answers[2]
    assert answers[2].endswith("Correct it or go on. If no tool fits, answer in plain text.")
    assert "not an available tool" not in "".join(answers[3:])


TICKET = next(task.id for task in load_tasks().values() if "TicketAPI" in task.involved_classes)


def test_a_login_that_only_says_false_is_a_failure():
    result, _ = play(TICKET, 0, [say("ticket_login", username="a", password="")])
    assert result["labels"][0] == "recovery_failure"


def test_a_loop_is_cut_and_the_turns_after_it_have_no_label():
    result, _ = play(BASE, 1, [say("ls")] * 9, max_steps=5)
    assert result["labels"] == ["pass", "budget_cut"]
    assert result["bfcl_progress_info"]["failure_tags"][2:] == ["empty_turn_model_response"] * 2
