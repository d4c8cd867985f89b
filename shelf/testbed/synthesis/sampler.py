"""Samples call paths: a configuration and, turn by turn, operations that run on its live simulators.

A draw that the simulators refuse, or that does not fit the level or the category,
is rejected as a whole; about a third are kept.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from env_service.environments.bfcl.catalog import CLASSES, documents
from seal.records.benchmark import Category, Level
from shelf.testbed.synthesis.held_out import pair_is_reserved
from shelf.testbed.synthesis.operations import OPERATIONS, Operation
from shelf.testbed.synthesis.path import CallPath, Clause, PathCall, PathTurn
from shelf.testbed.synthesis.phrases import phrasebook
from shelf.testbed.synthesis.stage import RejectedDraw, Stage
from shelf.testbed.synthesis.values import Values
from shelf.testbed.synthesis.world import configuration

CATEGORY_KINDS: Mapping[Category, str] = {
    "miss_func": "missing_function",
    "miss_param": "missing_parameter",
    "long_context": "long_context",
}
CATEGORY_WEIGHTS: Mapping[Category, float] = {"base": 0.66, "miss_func": 0.15, "miss_param": 0.15, "long_context": 0.04}
CLASS_WEIGHTS: Mapping[str, float] = {
    "GorillaFileSystem": 4,
    "MessageAPI": 2,
    "TwitterAPI": 2.5,
    "TicketAPI": 2.5,
    "TradingBot": 4,
    "VehicleControlAPI": 3.5,
    "TravelAPI": 3.5,
    "MathAPI": 1,
}
LONG_CONTEXT_CLASSES = ("GorillaFileSystem", "TradingBot", "VehicleControlAPI", "TravelAPI")
"""The simulators that inflate their state or results in a long context."""

TURN_WEIGHTS: Mapping[int, float] = {1: 0.1, 2: 0.4, 3: 0.35, 4: 0.15}
"""Weights of a task's number of requests; longer tasks have the last weight."""

_TWO_CLASSES = 0.3
_TWO_OPERATIONS = 0.25
_FEW_TOOLS = 0.9
_EXTRA_TOOLS = (3, 7)
SHOWN = (4, 6)
"""The fewest and the most tools that a task shows if its documents have to be short."""
_MOST_CALLS = 5
_TRIES = 8


@dataclass(frozen=True)
class SamplerSettings:
    """Settings of the sampling.

    turns: weights of the number of requests (a value or a tool that comes later is not a request). documents: the most
    characters in the documents of a task, which then shows `SHOWN` tools; None for no limit.
    """

    turns: Mapping[int, float] = field(default_factory=lambda: TURN_WEIGHTS)
    classes: tuple[str, ...] = CLASSES
    categories: Mapping[Category, float] = field(default_factory=lambda: CATEGORY_WEIGHTS)
    documents: int | None = None


def short(documents: int, turns: Mapping[int, float] = MappingProxyType({1: 0.5, 2: 0.5})) -> SamplerSettings:
    """Settings for base tasks whose documents have at most `documents` characters, for models that read them."""
    return SamplerSettings(turns, categories={"base": 1.0}, documents=documents)


def sample_path(rng: random.Random, level: Level, settings: SamplerSettings) -> CallPath:
    """Draw one path; RejectedDraw if the draw fails."""
    category = _weighted(rng, settings.categories)
    among = [name for name in settings.classes if category != "long_context" or name in LONG_CONTEXT_CLASSES]
    if not among:
        raise RejectedDraw("no class with a long context")
    classes = _draw_classes(rng, among)
    values = Values(rng, held_out=level != "train")
    config = configuration(classes, values)
    draft = _Draft(Stage(values, category, config), level, classes)
    count = _weighted(rng, settings.turns)
    special = rng.randrange(count) if category in ("miss_func", "miss_param") else -1
    for number in range(count):
        draft.add_turn(category if number == special else "base")
    if level == "paths" and not draft.novel:
        raise RejectedDraw("no reserved pair")
    hidden = draft.hidden_tools() if settings.documents is None else draft.all_but_short(settings.documents)
    kinds = draft.stage.kinds | {CATEGORY_KINDS[category]} if category in CATEGORY_KINDS else draft.stage.kinds
    return CallPath(
        category=category,
        classes=classes,
        config=config,
        turns=tuple(draft.turns),
        calls=tuple(draft.calls),
        withheld=draft.withheld,
        hidden=hidden,
        kinds=frozenset(kinds | {"few_tools"} if hidden else kinds),
    )


class _Draft:
    """A path while its turns are drawn. novel: whether it has a reserved pair of operations."""

    def __init__(self, stage: Stage, level: Level, classes: tuple[str, ...]) -> None:
        self.stage = stage
        self.turns: list[PathTurn | None] = []
        self.calls: list[tuple[PathCall, ...]] = []
        self.withheld: dict[int, tuple[str, ...]] = {}
        self.novel = False
        self._level = level
        self._classes = classes
        self._rng = stage.values.rng
        self._previous = ""

    def add_turn(self, category: Category) -> None:
        """Draw what one turn asks for; a special turn becomes two."""
        open_classes = [name for name in self._classes if name not in self.stage.finished]
        if not open_classes:
            raise RejectedDraw("logged out")
        class_name = self._rng.choice(open_classes)
        count = 2 if category == "base" and self._rng.random() < _TWO_OPERATIONS else 1
        self.stage.login = None
        clauses = tuple(self._operate(class_name, must_ask=category == "miss_param") for _ in range(count))
        calls = self.stage.take_calls()
        if len(calls) > _MOST_CALLS:
            raise RejectedDraw("too many calls")
        turn = PathTurn(class_name, clauses, calls, login=self.stage.login)
        if category == "miss_func":
            self._withhold(turn)
        elif category == "miss_param":
            self._leave_out(turn)
        else:
            self._append(turn, calls)

    def hidden_tools(self) -> tuple[str, ...]:
        """The tools of the classes that no turn shows: all except the needed ones and a few others, or none."""
        if self._rng.random() >= _FEW_TOOLS:
            return ()
        every = sorted(document["name"] for name in self._classes for document in documents(name))
        shown = {call.name for calls in self.calls for call in calls}
        shown.update(self._rng.sample(every, min(len(every), self._rng.randint(*_EXTRA_TOOLS))))
        return tuple(name for name in every if name not in shown)

    def all_but_short(self, most: int) -> tuple[str, ...]:
        """The same for a task whose documents have at most `most` characters; RejectedDraw if it needs more."""
        sizes = {tool["name"]: len(json.dumps(tool)) for name in self._classes for tool in documents(name)}
        shown = {call.name for calls in self.calls for call in calls}
        others, wanted = sorted(sizes.keys() - shown), self._rng.randint(*SHOWN)
        for name in self._rng.sample(others, len(others)):
            if len(shown) < wanted and sum(map(sizes.__getitem__, shown | {name})) <= most:
                shown.add(name)
        if not SHOWN[0] <= len(shown) <= SHOWN[1] or sum(map(sizes.__getitem__, shown)) > most:
            raise RejectedDraw("no few short documents")
        return tuple(sorted(sizes.keys() - shown))

    def _append(self, turn: PathTurn | None, calls: tuple[PathCall, ...]) -> None:
        self.turns.append(turn)
        self.calls.append(calls)

    def _withhold(self, turn: PathTurn) -> None:
        tools = {call.name for call in turn.calls}
        if len(tools) != 1 or tools & {call.name for calls in self.calls for call in calls}:
            raise RejectedDraw("no single tool to withhold")
        self.withheld[len(self.turns) + 1] = tuple(tools)
        self._append(PathTurn(turn.class_name, turn.clauses, (), "without_tool"), ())
        self._append(None, turn.calls)

    def _leave_out(self, turn: PathTurn) -> None:
        if turn.login is not None or not all(call.succeeded for call in turn.calls):
            raise RejectedDraw("not simple enough to leave a value out")
        slot = self._rng.choice(phrasebook().askable(turn.clauses[0].operation))
        self._append(PathTurn(turn.class_name, turn.clauses, (), "without_value", slot), ())
        self._append(PathTurn(turn.class_name, turn.clauses, turn.calls, "value", slot), turn.calls)

    def _operate(self, class_name: str, must_ask: bool) -> Clause:
        candidates = self._candidates(class_name, must_ask)
        for _ in range(_TRIES if candidates else 0):
            operation = self._rng.choices(candidates, [operation.weight for operation in candidates])[0]
            slots = operation.run(self.stage)
            if slots is not None:
                self.novel = self.novel or self._is_reserved(operation)
                self._previous = operation.name
                if operation.uses_results:
                    self.stage.kinds.add("results")
                return Clause(operation.name, slots)
            if self.stage.called:
                raise RejectedDraw(f"{operation.name} stopped halfway")
        raise RejectedDraw("no operation")

    def _candidates(self, class_name: str, must_ask: bool) -> list[Operation]:
        named = [operation for operation in OPERATIONS.values() if operation.class_name == class_name]
        if must_ask:
            named = [operation for operation in named if phrasebook().askable(operation.name)]
        wanted = self._level == "paths"
        if not self._previous or (wanted and self.novel):
            return named
        fitting = [operation for operation in named if self._is_reserved(operation) == wanted]
        return fitting or (named if wanted else [])

    def _is_reserved(self, operation: Operation) -> bool:
        return bool(self._previous) and pair_is_reserved(self._previous, operation.name)


def _draw_classes(rng: random.Random, among: Sequence[str]) -> tuple[str, ...]:
    weights = [CLASS_WEIGHTS[name] for name in among]
    first = rng.choices(among, weights)[0]
    if first == "MathAPI" or rng.random() < _TWO_CLASSES:
        second = rng.choices(among, weights)[0]
        return (first,) if second == first else (first, second)
    return (first,)


def _weighted(rng: random.Random, weights: Mapping) -> object:
    return rng.choices(list(weights), list(weights.values()))[0]
