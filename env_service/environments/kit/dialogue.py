"""The dialogue of a task with tools: messages in, observations, evidence and a verdict out.

As in BFCL: a message without a call ends the user turn, the last turn ends the episode;
observations of a training episode get the interface's cues (paper, section 3.3), and the
evidence goes through the same rules (paper, section 3.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from env_service.answers import COMPLETED, Evaluation, Message, Opening, Step
from env_service.environments.base import Call, Guard, Refusal
from env_service.environments.kit.calls import Parsed
from env_service.environments.kit.formats import get_format
from env_service.environments.kit.report import assessment, blames
from env_service.environments.kit.settings import Settings
from env_service.environments.kit.tasks import Check, Outcome, ToolTask
from env_service.environments.leak_watch import LeakWatch
from seal.diagnosis.categories import qualified
from seal.diagnosis.evidence import ActionEvidence, CallEvidence, Stop, TurnEvidence
from seal.diagnosis.schema import violations
from seal.interface.feedback import observe_feedback
from seal.interface.guard import LeakGuard
from seal.interface.observation import observe_start

if TYPE_CHECKING:
    from env_service.environments.kit.environment import ToolEnvironment


@dataclass
class _Turn:
    """What has happened in one user turn so far."""

    actions: list[ActionEvidence] = field(default_factory=list)
    stop: Stop = "open"
    check: Check = field(default_factory=Check)
    feedback_before: bool = False
    closed_by_tool: bool = False

    @property
    def calls(self) -> list[CallEvidence]:
        return [call for action in self.actions for call in action.calls]


class ToolEpisode:
    """A running dialogue of one task."""

    def __init__(self, environment: ToolEnvironment, task: ToolTask, settings: Settings, guard: Guard) -> None:
        """ValueError for a number of turns that the task does not have, or an interface that cannot be read."""
        if settings.turns is not None:
            if not 1 <= settings.turns <= len(task.users):
                raise ValueError(f"turns must be in 1..{len(task.users)} for {task.id}, got {settings.turns}.")
            task = replace(task, users=task.users[: settings.turns], reference=task.reference[: settings.turns])
        self._environment = environment
        self._task = task
        self._settings = settings
        self._guard = guard
        self._category = qualified(environment.name, task.category)
        self._omega = settings.interface()
        self._parse_errors = settings.on_parse_error(self._omega, self._category)
        self._format = get_format(settings.tool_prompt_mode)
        self._tools = tuple(environment.tools(task))
        self._documents = {tool["name"]: tool for tool in self._tools}
        self._max_steps = settings.max_steps or environment.max_steps
        self._world = environment.world(task)
        watched = settings.leak_guard and self._omega is not None
        secrets = environment.secrets(task.id) if watched else None
        leak_guard = LeakGuard(secrets, self._tools, self._format.cue_wording) if secrets else None
        self._watch = LeakWatch(task.id, leak_guard)
        self._turns = [_Turn()]
        self._pending_feedback = False
        self._ended = False
        self._valid = False

    # --- the verbs ----------------------------------------------------------------

    def start(self) -> Opening:
        """System and first user message, and what identifies the episode."""
        instructions = self._environment.instructions(self._task, self._format.cue_wording.compact)
        content, user = self._format.system(instructions, self._tools), self._task.users[0]
        self._watch.saw(user)
        omega = None
        if self._omega is not None:
            wording = self._format.cue_wording
            augmented = observe_start(content, self._tools, self._omega, self._category, wording)
            content = self._watch.checked(content, augmented)
            omega = {"version": self._omega.version, "digest": self._omega.digest}
        info = {
            "task_id": self._task.id,
            "environment": self._environment.name,
            "category": self._category,
            "group": self._task.group,
            "tools_count": len(self._tools),
            "questions_count": len(self._task.users),
            "omega": omega,
            "data_hash": self._environment.data_hash(),
            "tool_prompt_mode": self._format.name,
        }
        return {"state": [{"role": "system", "content": content}, {"role": "user", "content": user}], "info": info}

    def step(self, content: str, truncated: bool) -> Step:
        """Take one assistant message; Refusal when the episode has ended."""
        if self._ended:
            raise Refusal("The episode has ended: evaluate it, release it, or create another one.")
        self._watch.saw(content)
        if truncated:
            self._turn.actions.append(ActionEvidence(truncated=True))
            return self._end("length")
        parsed = self._format.parse(content, self._documents)
        self._watch.saw_calls(parsed.calls)
        if parsed.refusals and self._parse_errors == "end_episode":
            self._turn.actions.append(ActionEvidence(refusals=parsed.refusals))
            return self._end("parse_error")
        stop_tool = self._environment.stop_tool
        if stop_tool is not None and any(name == stop_tool for name, _ in parsed.calls):
            self._turn.closed_by_tool = True
            return self._next_turn()
        if not parsed.calls and not (parsed.refusals and self._parse_errors == "feedback"):
            self._turn.actions.append(ActionEvidence(refusals=parsed.refusals))
            return self._next_turn()
        return self._act(parsed)

    def evaluate(self, params: Mapping[str, Any]) -> Evaluation | float:
        """Return verdict, figures and labels; 1.0 or 0.0 when sparse.

        params["stop"] (length or step_limit) says that the caller ends the episode here, so that the turn
        that it cuts is diagnosed too; Refusal for another word.
        """
        cut = params.get("stop")
        if cut not in (None, "length", "step_limit"):
            raise Refusal(f"params.stop is {cut!r}: it is length, step_limit or left out.")
        if params.get("sparse"):
            return float(self._valid)
        taxonomy = params.get("taxonomy") or self._settings.taxonomy
        return assessment(self.evidence(cut), taxonomy, tuple(self._environment.ungrounded), self._valid, self._ended)

    def describe(self) -> str:
        """Return the tools, one per line."""
        return "\n".join(f"{tool['name']}: {tool['description']}" for tool in self._tools)

    def evidence(self, cut: Stop | None = None) -> tuple[TurnEvidence, ...]:
        """Return what was observed in every turn of the task, including turns not reached.

        cut: how a turn that is still open has ended, when the caller knows that nothing more will come.
        """
        calls = [turn.calls for turn in self._turns]
        over = self._ended or cut is not None
        judged = blames(
            self._environment, self._task, calls, [self._failed(index) for index in range(len(self._turns))]
        )
        stop_tool = (self._environment.stop_tool,) if self._environment.stop_tool else ()
        found = []
        for index, reference in enumerate(self._task.reference):
            needed = tuple(name for name, _ in reference) + (stop_tool if reference else ())
            if index >= len(self._turns):
                found.append(TurnEvidence(turn=index, expected_calls=len(needed), stop="not_reached"))
                continue
            turn = self._turns[index]
            found.append(
                TurnEvidence(
                    turn=index,
                    expected_calls=len(needed),
                    actions=tuple(turn.actions),
                    stop=cut or "open" if turn.stop == "open" else turn.stop,
                    state_match=turn.check.state_match,
                    response_match=turn.check.response_match,
                    feedback_before=turn.feedback_before,
                    needed=needed,
                    needed_writes=tuple(name for name in needed if name in self._environment.writes),
                    absent=turn.check.absent,
                    blame=judged[index] if over and not self._valid else None,
                )
            )
        return tuple(found)

    # --- one action ---------------------------------------------------------------

    @property
    def _turn(self) -> _Turn:
        return self._turns[-1]

    @property
    def _index(self) -> int:
        return len(self._turns) - 1

    def _act(self, parsed: Parsed) -> Step:
        calls = tuple(self._call(call) for call in parsed.calls)
        action = ActionEvidence(calls=calls, refusals=parsed.refusals)
        self._turn.actions.append(action)
        shows_refusals = self._parse_errors == "feedback"
        refused = [f"Error: {refusal}" for refusal in parsed.refusals] if shows_refusals else []
        shown = action if shows_refusals else replace(action, refusals=())
        if any(call.error is None for call in calls):
            self._pending_feedback = False
        self._pending_feedback = self._pending_feedback or shown.failed
        acted = sum(bool(each.calls or each.refusals) for each in self._turn.actions)
        errors = sum(call.error is not None for turn in self._turns for call in turn.calls)
        limit = self._environment.error_limit
        if acted > self._max_steps or (limit is not None and errors >= limit):
            return self._end("step_limit")
        content = self._format.results([*(call.result for call in calls), *refused])
        if self._omega is not None:
            history = [earlier for turn in self._turns for earlier in turn.actions][:-1]
            wording = self._format.cue_wording
            augmented = observe_feedback(content, shown, history, self._tools, self._omega, self._category, wording)
            content = self._watch.checked(content, augmented)
        return self._answer(content, shown)

    def _call(self, call: Call) -> CallEvidence:
        name, arguments = call[0].strip(), call[1]
        document = self._documents.get(name)
        if document is None:
            outcome = Outcome(f"Error: there is no tool {name[:64]!r}.", "unavailable")
            return CallEvidence(name, arguments, False, (), outcome.error, outcome.text, writes=False)
        broken = violations(arguments, document)
        writes = name in self._environment.writes
        if broken and self._environment.strict:
            text = f"Error: {broken[0].message}."
            return CallEvidence(name, arguments, True, broken, "signature", text, writes)
        outcome = self._guard.run(
            lambda: self._world.call(name, arguments), lambda reason: Outcome(f"Error: {reason}", "deadline")
        )
        return CallEvidence(name, arguments, True, broken, outcome.error, outcome.text, writes)

    # --- turns and the end --------------------------------------------------------

    def _next_turn(self) -> Step:
        if len(self._turns) == len(self._task.users):
            return self._end("answered")
        self._close("answered")
        self._turns.append(_Turn(feedback_before=self._pending_feedback))
        content = self._task.users[self._index]
        self._watch.saw(content)
        return self._answer(content, None)

    def _close(self, stop: Stop) -> None:
        """End the turn and judge it; one that was not ended with the stop tool lacks what that tool says."""
        turn = self._turn
        turn.stop = stop
        if stop != "answered" or not self._task.reference[self._index]:
            return
        turn.check = self._world.check(self._index, turn.calls)
        stop_tool = self._environment.stop_tool
        if stop_tool is not None and not turn.closed_by_tool:
            turn.check = replace(turn.check, response_match=False, absent=(*turn.check.absent, stop_tool))

    def _end(self, stop: Stop) -> Step:
        self._close(stop)
        self._ended = True
        complete = stop == "answered" and len(self._turns) == len(self._task.users)
        self._valid = complete and not any(map(self._failed, range(len(self._turns))))
        return self._answer(COMPLETED, None)

    def _failed(self, index: int) -> bool:
        """Whether a turn with a reference is over and did not pass; one that a budget cut is nobody's fault."""
        turn = self._turns[index]
        if turn.stop in ("open", "length", "step_limit"):
            return False
        return bool(self._task.reference[index]) and not turn.check.passed

    def _answer(self, content: str, action: ActionEvidence | None) -> Step:
        errors = [call.error for call in action.calls if call.error] if action else []
        refused = "refusal" if action and action.refusals else None
        info = {
            "turn": self._index,
            "stop": self._turn.stop if self._ended else None,
            "error_class": errors[0] if errors else refused,
        }
        state: list[Message] = [{"role": "user", "content": content, "tool_calls": []}]
        return {"state": state, "reward": float(self._valid), "is_terminated": self._ended, "info": info}
