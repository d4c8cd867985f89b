"""The official verdict, turn by turn, on clean simulators.

The package checks a turn by running the reference beside the model's calls and comparing public state and responses.
The reference of a task gives the same result each time, so its results and states are cached; the comparisons
themselves are the package's own functions.
"""

import copy
import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.long_context import CREDIT_CARD_EXTENSION
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import response_checker, state_checker

from env_service.environments.bfcl import clock
from env_service.environments.bfcl.catalog import Task, load_tasks
from env_service.environments.bfcl.tools import Toolbox, parse_reference
from env_service.environments.kit.tasks import Check
from seal.method.diagnosis.evidence import CallEvidence


@dataclass(frozen=True)
class ReferenceTurn:
    """One turn of the reference: results, the tool of each result, and the simulators after the turn (read only)."""

    results: tuple[str, ...]
    instances: Mapping[str, Any]
    error: str | None
    tools: tuple[str, ...] = ()


class _Key:
    """A task as a cache key: equal for every task whose reference run is the same."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __hash__(self) -> int:
        return hash((self.task.id, self.task.reference))

    def __eq__(self, other: object) -> bool:
        ours, theirs = self.task, getattr(other, "task", None)
        return ours.initial_config is theirs.initial_config and ours.reference == theirs.reference


def reference(task: Task) -> tuple[ReferenceTurn, ...]:
    """Return the reference run of every turn of a task, of its prefix or of a variant of it."""
    own = load_tasks().get(task.id)
    # 28 references compare a date with today's: their results hold for one day.
    if own and task.initial_config is own.initial_config and task.reference == own.reference[: len(task.reference)]:
        return _benchmarks(_Key(own), clock.today())[: len(task.reference)]
    return _others(_Key(task), clock.today())


def _run(key: _Key, _day: datetime.date) -> tuple[ReferenceTurn, ...]:
    toolbox = Toolbox(key.task, label="ground_truth")
    turns: list[ReferenceTurn] = []
    kept: dict[str, Any] = {}
    for calls in key.task.reference:
        parsed = [parse_reference(call) for call in calls]
        outcomes = [toolbox.call(*call) for call in parsed]
        errors = [outcome.text for outcome in outcomes if outcome.error]
        unchanged = kept and state_checker(toolbox.instances, kept)["valid"]
        kept = kept if unchanged else copy.deepcopy(toolbox.instances)
        results, tools = (outcome.text for outcome in outcomes), (name for name, _ in parsed)
        turns.append(ReferenceTurn(tuple(results), kept, errors[0] if errors else None, tuple(tools)))
    return tuple(turns)


_benchmarks, _others = lru_cache(maxsize=800)(_run), lru_cache(maxsize=512)(_run)


def compare(expected: ReferenceTurn, instances: Mapping[str, Any], made_calls: bool, results: list[str]) -> Check:
    """Compare one turn with the reference.

    results are those of all calls so far, including earlier turns, as the official response check requires. A turn
    whose reference is empty, or in which nothing was called, is not compared.
    """
    if not expected.results or not made_calls:
        return Check()
    response_match = response_checker(results, list(expected.results), 0)["valid"]
    return Check(
        instances_match=set(instances) == set(expected.instances),
        state_match=_same_state(instances, expected.instances),
        response_match=response_match,
        absent=() if response_match else _absent(expected, results),
    )


def _absent(expected: ReferenceTurn, results: list[str]) -> tuple[str, ...]:
    left = Counter(expected.results) - Counter(results)
    absent = []
    # Of calls with the same result, the last count as absent: a read that repeats a write's result is often left out.
    for tool, result in reversed(list(zip(expected.tools, expected.results, strict=False))):
        if left[result] > 0:
            left[result] -= 1
            absent.append(tool)
    return tuple(reversed(absent))


def _same_state(instances: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    try:
        return state_checker(instances, expected)["valid"]
    except RecursionError:  # a directory copied into itself, which no reference contains
        return False


NOT_RUN = ("unavailable", "deadline")
"""Errors of calls that never reached a simulator, or must not run again."""


def shares_state(task: Task, turns: Sequence[Sequence[CallEvidence]]) -> bool:
    """Return True when the official checker's two simulators may alias state in this run.

    In the inflated travel scenario the extension's cards are the module's own dictionaries, so the reference's state
    also shows what the model does to their balance: an insurance bought with such a card is officially not a state
    mismatch, although it is one on clean simulators. Likewise, `mention` appends to the default list that both
    simulators put into their tweets.
    """
    cards = task.long_context and "TravelAPI" in task.involved_classes
    return cards or any(call.name.strip() == "mention" for calls in turns for call in calls)


def shared_verdict(task: Task, turns: Sequence[Sequence[CallEvidence]]) -> bool:
    """Return the official verdict of a complete run that `shares_state`."""
    model = Toolbox(task)
    expected = Toolbox(task, label="ground_truth", defaults=model.tweet_defaults)
    if task.long_context and "TravelAPI" in task.involved_classes:
        cards, expected_cards = (box.instances["TravelAPI"].credit_card_list for box in (model, expected))
        own = task.initial_config.get("TravelAPI", {}).get("credit_card_list", {})
        expected_cards.update({card: cards[card] for card in CREDIT_CARD_EXTENSION if card not in own})
    results: list[str] = []
    for calls, reference_calls in zip(turns, task.reference, strict=True):
        results += [c.result if c.error in NOT_RUN else model.call(c.name, c.arguments).text for c in calls]
        texts = tuple(expected.call(*parse_reference(call)).text for call in reference_calls)
        comparison = compare(ReferenceTurn(texts, expected.instances, None), model.instances, bool(calls), results)
        if reference_calls and not comparison.passed:
            return False
    return True
