"""A task of the benchmark as an episode plays it (docs/how-it-works.md#training-and-evaluation; paper, section 3.3)."""

from collections.abc import Mapping, Sequence
from typing import Any

from env_service.answers import Evaluation
from env_service.environments.bfcl import clock
from env_service.environments.bfcl.catalog import Document, Task, available_tools, data_hash, revealed_tools
from env_service.environments.bfcl.formats import BfclFormat
from env_service.environments.bfcl.report import with_release_figures
from env_service.environments.bfcl.settings import BfclSettings
from env_service.environments.bfcl.tools import WRITES, Toolbox, argument_violations
from env_service.environments.bfcl.verifier import compare, reference, shared_verdict, shares_state
from env_service.environments.kit.calls import Parsed
from env_service.environments.kit.scene import History, Scene
from env_service.environments.kit.tasks import Check, Needed, Outcome, TaskSource
from seal.method.diagnosis.evidence import Stop, TurnEvidence, Violation
from seal.method.diagnosis.results import reports_failure


class BfclScene(Scene):
    """One task with the benchmark's tools, simulators and checker."""

    format: BfclFormat
    own = staticmethod(dict)  # a toolbox copies arguments itself, also those that JSON cannot hold
    _task: Task

    def __init__(self, environment: TaskSource, task: Task, settings: BfclSettings) -> None:
        super().__init__(environment, task, settings)
        training, enforced = settings.interface is not None, settings.enforce_available_tools
        evaluated = not training and settings.split != "train"
        self._official = evaluated and settings.on_parse_error(task.category) == "end_turn"
        self._enforces_availability = training if enforced is None else enforced

    def info(self) -> Mapping[str, Any]:
        return {
            "test_id": self.task_id,
            "scenario": self._task.scenario,
            "data_hash": data_hash(),
            "day": clock.today().isoformat(),
            "observation_lite": bool(self.settings.observation_lite),
        }

    def tools(self, turn: int) -> Sequence[Document]:
        return available_tools(self._task, turn)

    def revealed(self, turn: int) -> Sequence[Document]:
        return revealed_tools(self._task, turn)

    def user(self, turn: int) -> str:
        text = self._task.users[turn]
        if text is None:
            return self.format.reveal(self.revealed(turn))
        return self.format.user(text)

    def parse(self, content: str) -> Parsed:
        return self.format.parse(content)

    def cut_ends(self, content: str) -> bool:
        return not (self._official and content)  # officially, a message has no text only if the context is full

    def fatal(self, content: str) -> str | None:
        return self.format.rendering_error(content) if self._official else None

    def violations(self, tool: str, arguments: Mapping[str, Any]) -> tuple[Violation, ...]:
        return argument_violations(tool, arguments)

    def refused(self, name: str, available: bool, violations: Sequence[Violation]) -> Outcome | None:
        refused = self._enforces_availability and not available
        return Outcome(self.error(f"name '{name}' is not defined"), "unavailable") if refused else None

    def error(self, reason: str) -> str:
        return f"Error during execution: {reason}"

    def reports_failure(self, tool: str, result: str) -> bool:
        return reports_failure(tool, result)

    def needed(self, turn: int) -> Needed:
        expected = reference(self._task)[turn]
        return Needed(expected.tools, tuple(tool for tool in expected.tools if tool in WRITES), expected.error)

    def judges(self, stop: Stop, last: bool) -> bool:
        # The official runner fails a run that it cut, unless it cut the last turn.
        return stop == "answered" or (stop == "step_limit" and last)

    def check(self, world: Toolbox, turn: int, history: History) -> Check:
        results = [call.result for calls in history for call in calls]
        return compare(reference(self._task)[turn], world.instances, bool(history[turn]), results)

    def verdict(self, history: History, passed: bool) -> bool:
        return shared_verdict(self._task, history) if shares_state(self._task, history) else passed

    def assessment(self, turns: Sequence[TurnEvidence], taxonomy: str, valid: bool, ended: bool) -> Evaluation:
        return with_release_figures(self.task_id, super().assessment(turns, taxonomy, valid, ended))
