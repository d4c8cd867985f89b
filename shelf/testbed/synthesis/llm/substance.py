"""Whether calls stand by themselves, and whether they come to anything."""

import json
from collections.abc import Sequence

from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.tools import WRITES, Toolbox
from env_service.environments.bfcl.verifier import ReferenceTurn, compare, reference
from shelf.testbed.synthesis.llm.exploration import Made, Playground
from shelf.testbed.synthesis.llm.values import leaves, normal


def results_again(task: Task, made: Sequence[Made]) -> bool:
    """Whether these calls, made alone from the task's initial state, all give what they gave."""
    playground = Playground(task)
    again = [playground.make(each.call.name, dict(each.call.arguments)) for each in made]
    return all(one.call.succeeded and one.result == other.result for one, other in zip(again, made, strict=True))


def repeats_a_call(made: Sequence[Made]) -> bool:
    """Whether a call is made again that gave the same before."""
    return len({(str(each.call), each.result) for each in made}) < len(made)


def does_nothing(task: Task, made: Sequence[Made]) -> bool:
    """Whether the reference changes no state and its results say nothing that its arguments do not."""
    before, after = Toolbox(task).instances, reference(task)[-1].instances
    unchanged = compare(ReferenceTurn(("",), after, None), before, True, [""]).state_match
    return bool(unchanged) and not any(map(_tells, made))


def _tells(made: Made) -> bool:
    """Whether the call is made for its result, and that holds a value that the call has not."""
    if made.call.name in WRITES:
        return False
    try:
        value = json.loads(made.result)
    except ValueError:
        value = made.result
    given = {normal(leaf) for leaf in leaves(made.call.arguments)}
    told = (leaf for leaf in leaves(value) if leaf not in (None, "", "None") and not isinstance(leaf, bool))
    return any(normal(leaf) not in given for leaf in told)
