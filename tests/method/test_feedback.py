"""phi_err: what a failed action is told, from the action, the tools and the history."""

import pytest

from env_service.environments.bfcl.catalog import documents, load_tasks
from env_service.environments.bfcl.tools import Toolbox, argument_violations
from seal.method.diagnosis.evidence import ActionEvidence, CallEvidence
from seal.method.interface.cues import Omega, catalogue
from seal.method.interface.feedback import observe_feedback
from seal.method.interface.wording import PromptWording, fill, wording

FILES = documents("GorillaFileSystem")
FULL = Omega.of(list(catalogue()))
FULL_SIZE, COMPACT = (
    PromptWording("Write calls as [TOOL(ARGUMENT='VALUE')].", "answer between <answer> and </answer>", compact)
    for compact in (False, True)
)


def call(name="cd", error="execution", result="", available=True, **arguments):
    broken = argument_violations(name, arguments) if error == "signature" else ()
    return CallEvidence(name, arguments, available, broken, error, result)


def action(*calls, **changes):
    return ActionEvidence(tuple(calls), **changes)


def feedback(failure, *cues, history=(), mode=FULL_SIZE, tools=FILES):
    return observe_feedback("OBS", failure, history, tools, Omega.of(cues) if cues else FULL, "base", mode)


FINE = action(call("ls", error=None, result="{}"))


def test_only_a_failed_action_with_an_active_cue_gets_feedback():
    assert feedback(FINE) == "OBS"
    assert feedback(action(call()), "caution") == "OBS"


def test_an_unavailable_tool_is_told_with_the_tools_that_exist():
    copy = action(call("copy", "unavailable", available=False))
    assert feedback(copy, "feedback_error") == "OBS\ncopy is not one of the available tools."
    assert "Tools that exist now: cat, cd, cp," in feedback(copy, "feedback_tools")
    assert feedback(copy, "feedback_tools", mode=COMPACT).startswith("OBS\nTools: cp ")


def test_the_list_of_tools_appears_only_when_one_was_missed():
    assert feedback(action(call()), "feedback_tools") == "OBS"


def test_every_missing_argument_is_told_before_anything_else():
    text = feedback(action(call("cp", "signature", amount=1)), "feedback_error")
    assert "missing destination, source; amount is not an argument of this tool" in text


@pytest.mark.parametrize("mode", [FULL_SIZE, COMPACT], ids=["full", "compact"])
def test_a_wrong_type_is_told_without_naming_arguments_that_are_there(mode):
    text = feedback(action(call("cp", "signature", destination="x", source=1)), "feedback_error", mode=mode)
    assert "source must be a string" in text and "missing" not in text and "Required" not in text


def test_compact_feedback_repeats_the_schema_cue_of_a_call_without_a_required_argument():
    text = feedback(action(call("cp", "signature", destination=3, sorce="a")), "feedback_error", mode=COMPACT)
    assert text.splitlines()[1].startswith("Required: cp source destination; ")


def test_a_refused_signature_tells_what_the_tool_takes():
    refused = action(CallEvidence("wc", {}, True, (), "signature", "Error"))
    assert "it takes file_name; optional: mode" in feedback(refused, "feedback_error")


def test_an_unreadable_call_is_answered_with_the_format_of_the_prompt_mode():
    unreadable = ActionEvidence(refusals=("x",))
    assert "could not be read as a tool call. Write calls as [TOOL(" in feedback(unreadable, "feedback_error")
    assert feedback(unreadable, "feedback_answer").endswith("fits the request, answer between <answer> and </answer>.")


def test_a_call_without_an_answer_in_time_is_told_so():
    assert "took too long" in feedback(action(call("cd", "deadline")), "feedback_error")


def test_a_call_that_failed_before_in_the_same_way_is_told_so():
    again = action(call(folder="a", result="No such file"))
    text = feedback(again, "feedback_history", history=(again, FINE))
    assert text == "OBS\n" + fill(wording()["history"]["repeated"]["text"], {"name": "cd"})
    short = feedback(again, "feedback_history", history=(again, FINE), mode=COMPACT)
    assert short == "OBS\n" + fill(wording()["history"]["repeated"]["compact"], {"name": "cd"})


@pytest.mark.parametrize(
    "other",
    [
        action(call(folder="b", result="No such file")),
        action(call(folder="a", result="Not a directory")),
        action(call("ls", folder="a", result="No such file")),
        action(call(folder="a", error=None, result="{}")),
    ],
)
def test_another_call_another_error_or_a_success_is_not_a_repetition(other):
    assert "same call" not in feedback(action(call(folder="a", result="No such file")), history=(other, FINE))


def test_errors_in_a_row_are_counted_until_a_success():
    errors = [action(call(folder=name, result="No such file")) for name in "abc"]
    assert feedback(errors[0], "feedback_history") == "OBS"
    assert "This is error 3 in a row" in feedback(errors[2], "feedback_history", history=errors[:2])
    assert feedback(errors[2], "feedback_history", history=(*errors[:2], FINE)) == "OBS"
    assert "Error 2 in a row" in feedback(errors[2], history=errors[1:2], mode=COMPACT)


def test_text_of_the_policy_is_never_read_as_a_template():
    odd = action(call("{tools}{detail}", "unavailable", available=False))
    assert "{tools}{detail} is not one of the available tools." in feedback(odd, "feedback_error", "feedback_tools")


def test_feedback_stays_short_whatever_the_policy_wrote():
    calls = [CallEvidence("x" * 9000 + str(i), {}, False, (), "unavailable") for i in range(50)]
    monster = action(*calls, refusals=("r" * 9000,))
    assert len(feedback(monster, history=(monster,) * 20)) < 2000
    assert len(feedback(monster, history=(monster,) * 20, mode=COMPACT)) < 400


# --- on the real simulators ----------------------------------------------------------


def answered(class_name, changes, *calls):
    """The feedback on the last of these calls, played on a simulator with these attributes."""
    task = next(task for task in load_tasks().values() if class_name in task.involved_classes)
    toolbox = Toolbox(task)
    vars(toolbox.instances[class_name]).update(changes)
    for name, arguments in calls:
        outcome = toolbox.call(name, arguments)
    name, arguments = calls[-1]
    failure = action(CallEvidence(name, arguments, True, (), outcome.error, outcome.text))
    return feedback(failure, "feedback_error", tools=documents(class_name))


def test_an_empty_tank_an_end_of_the_tree_and_a_closed_ticket_get_advice_that_helps():
    ready = {"fuelLevel": -1.0, "remainingUnlockedDoors": 0, "brakePedalStatus": "pressed", "_brakePedalForce": 1000.0}
    empty = answered("VehicleControlAPI", ready, ("startEngine", {"ignitionMode": "START"}))
    assert "startEngine is not possible in the current state: first change what its message names" in empty
    top = answered("GorillaFileSystem", {}, *[("cd", {"folder": ".."})] * 9)
    assert "There is no folder above this one" in top
    closed = {"ticket_queue": [{"id": 1, "status": "Closed"}]}
    done = answered("TicketAPI", closed, ("close_ticket", {"ticket_id": 1}))
    assert "close_ticket is not needed" in done
