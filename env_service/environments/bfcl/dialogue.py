"""One BFCL episode: messages in, observations and evidence out.

The episode runs the calls on its own clean simulators and compares each turn
when it ends, so an evaluation only reads what was recorded. In evaluation it
follows the official runner to the letter, also when that fails a task; in
training, observations get the interface's cues, unavailable tools are refused
and a cut message ends the episode (paper, section 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from env_service.answers import COMPLETED, Evaluation, Message, Opening, Step
from env_service.environments.base import Guard, Refusal
from env_service.environments.bfcl import clock
from env_service.environments.bfcl.blame import blame
from env_service.environments.bfcl.catalog import Task, available_tools, data_hash, revealed_tools
from env_service.environments.bfcl.formats import Call, Parsed, get_format
from env_service.environments.bfcl.leaks import episode_guard
from env_service.environments.bfcl.report import assessment
from env_service.environments.bfcl.settings import Settings
from env_service.environments.bfcl.tools import WRITES, CallOutcome, Toolbox, argument_violations
from env_service.environments.bfcl.verifier import (
    Comparison,
    Played,
    compare,
    reference,
    shared_verdict,
    shares_state,
    verdict,
)
from env_service.environments.leak_watch import LeakWatch
from seal.diagnosis.evidence import ActionEvidence, Blame, CallEvidence, Stop, TurnEvidence
from seal.interface.feedback import observe_feedback
from seal.interface.observation import observe_reveal, observe_start


@dataclass
class _Turn:
    """What has happened in one user turn so far."""

    actions: list[ActionEvidence] = field(default_factory=list)
    stop: Stop = "open"
    comparison: Comparison = field(default_factory=Comparison)
    feedback_before: bool = False

    @property
    def calls(self) -> list[CallEvidence]:
        return [call for action in self.actions for call in action.calls]


class BfclEpisode:
    """A running dialogue of one task."""

    def __init__(self, task: Task, settings: Settings, guard: Guard) -> None:
        """Load the simulators; ValueError for an interface that cannot be read or an evaluation split with one."""
        self._task = task
        self._settings = settings
        self._guard = guard
        self._omega = settings.interface()
        self._parse_errors = settings.on_parse_error(task.category)
        self._official = settings.official and self._parse_errors == "end_turn"
        self._enforces_availability = settings.enforces_availability
        self._format = get_format(settings.tool_prompt_mode)
        self._wording = self._format.cue_wording
        watched = settings.leak_guard and self._omega is not None
        self._watch = LeakWatch(task.id, episode_guard(task, self._wording) if watched else None)
        self._toolbox = Toolbox(task)
        self._results: list[str] = []
        self._turns = [_Turn()]
        self._pending_feedback = False
        self._ended = False
        self._valid = False
        self._blames: tuple[Blame | None, ...] | None = None
        self._show_tools()

    # --- the verbs ----------------------------------------------------------------

    def start(self) -> Opening:
        """System and first user message, and what identifies the episode."""
        tools = self._visible
        content, user = self._format.system(self._task, tools), self._format.user(self._task, 0)
        self._watch.saw(user)
        if self._omega is not None:
            augmented = observe_start(content, tools, self._omega, self._task.category, self._wording)
            content = self._watch.checked(content, augmented)
        state = [{"role": "system", "content": content}, {"role": "user", "content": user}]
        omega = None
        if self._omega is not None:
            omega = {"version": self._omega.version, "digest": self._omega.digest}
        info = {
            "task_id": self._task.id,
            "test_id": self._task.id,
            "tools_count": len(tools),
            "questions_count": len(self._task.users),
            "category": self._task.category,
            "scenario": self._task.scenario,
            "omega": omega,
            "data_hash": data_hash(),
            "day": clock.today().isoformat(),
            "tool_prompt_mode": self._format.name,
            "observation_lite": bool(self._settings.observation_lite),
        }
        return {"state": state, "info": info}

    def step(self, content: str, truncated: bool) -> Step:
        """Take one assistant message; Refusal when the episode has ended."""
        if self._ended:
            raise Refusal("The episode has ended: evaluate it, release it, or create another one.")
        self._watch.saw(content)
        if truncated and not (self._official and content):  # officially, only a full context gives no text at all
            self._turn.actions.append(ActionEvidence(truncated=True))
            return self._end("length")
        parsed = self._format.parse(content)
        self._watch.saw_calls(parsed.calls)
        mode = self._parse_errors
        if parsed.refusals and mode == "end_episode":
            self._turn.actions.append(ActionEvidence(refusals=parsed.refusals))
            return self._end("parse_error")
        unrenderable = self._format.rendering_error(content) if self._official else None
        if not parsed.calls and not (parsed.refusals and mode == "feedback"):
            if unrenderable and not self._in_last_turn:
                return self._fail(parsed, unrenderable)
            self._turn.actions.append(ActionEvidence(refusals=parsed.refusals, truncated=truncated))
            return self._next_turn()
        if unrenderable and self._acted < self._settings.max_steps:
            return self._fail(parsed, unrenderable)
        return self._act(parsed, truncated, shows_refusals=mode == "feedback")

    def evaluate(self, params: Mapping[str, Any]) -> Evaluation | float:
        """Return the verdict, the release's figures and our own diagnosis; 1.0 or 0.0 when sparse.

        params["stop"] (length or step_limit) says that the caller ends the episode here, so that the turn
        that it cuts is diagnosed too; Refusal for another word.
        """
        cut = params.get("stop")
        if cut not in (None, "length", "step_limit"):
            raise Refusal(f"params.stop is {cut!r}: it is length, step_limit or left out.")
        if params.get("sparse"):
            return float(self._valid)
        taxonomy = params.get("taxonomy") or self._settings.taxonomy
        return assessment(self._task, self.evidence(cut), taxonomy, valid=self._valid, ended=self._ended)

    def describe(self) -> str:
        """Return the tools visible now, one per line."""
        return "\n".join(f"{tool['name']}: {tool['description']}" for tool in self._visible)

    def evidence(self, cut: Stop | None = None) -> tuple[TurnEvidence, ...]:
        """Return what was observed in every turn of the task, including turns not reached.

        cut: how a turn that is still open has ended, when the caller knows that nothing more will come.
        """
        expected = reference(self._task)
        blames = self._blame(cut)
        reached = tuple(
            TurnEvidence(
                turn=index,
                expected_calls=len(expected[index].results),
                actions=tuple(turn.actions),
                stop=cut or "open" if turn.stop == "open" else turn.stop,
                instances_match=turn.comparison.instances_match,
                state_match=turn.comparison.state_match,
                response_match=turn.comparison.response_match,
                feedback_before=turn.feedback_before,
                reference_error=expected[index].error,
                needed=expected[index].tools,
                needed_writes=expected[index].writes,
                absent=turn.comparison.absent,
                blame=blames[index],
            )
            for index, turn in enumerate(self._turns)
        )
        later = range(len(reached), len(self._task.users))
        stop: Stop = "not_reached"
        return reached + tuple(TurnEvidence(turn=i, expected_calls=len(expected[i].results), stop=stop) for i in later)

    def _blame(self, cut: Stop | None) -> tuple[Blame | None, ...]:
        """Return whose fault each turn's failure is; nobody's in an episode that is valid or goes on."""
        if self._valid or not (self._ended or cut):
            return (None,) * len(self._turns)
        if self._blames is not None:
            return self._blames
        # The calls of a turn that an unreadable message ended are worth nothing: it fails from any state.
        played = [[_played(call) for call in t.calls if t.stop != "parse_error"] for t in self._turns]
        blames = blame(self._task, played, [_failed(turn) for turn in self._turns])
        if self._ended:  # an episode that a caller calls cut may still go on
            self._blames = blames
        return blames

    # --- one action ---------------------------------------------------------------

    @property
    def _turn(self) -> _Turn:
        return self._turns[-1]

    @property
    def _index(self) -> int:
        return len(self._turns) - 1

    @property
    def _in_last_turn(self) -> bool:
        return len(self._turns) == len(self._task.users)

    @property
    def _acted(self) -> int:
        """The messages of this turn that made or meant a call."""
        return sum(bool(action.calls or action.refusals) for action in self._turn.actions)

    def _show_tools(self) -> None:
        self._visible = available_tools(self._task, self._index)
        self._names = {tool["name"] for tool in self._visible}

    def _fail(self, parsed: Parsed, reason: str) -> Step:
        """End an episode that the official pipeline drops: it cannot render the next prompt."""
        self._turn.actions.append(ActionEvidence(refusals=(*parsed.refusals, reason)))
        return self._end("parse_error")

    def _act(self, parsed: Parsed, truncated: bool, shows_refusals: bool) -> Step:
        calls = tuple(self._call(call, call[0].strip() in self._names) for call in parsed.calls)
        self._results += [call.result for call in calls]
        action = ActionEvidence(calls=calls, refusals=parsed.refusals, truncated=truncated)
        self._turn.actions.append(action)
        texts = [call.result for call in calls]
        if shows_refusals:
            texts += [f"Error: {refusal}" for refusal in parsed.refusals]
        if any(call.error is None for call in calls):
            self._pending_feedback = False
        shown = action if shows_refusals else replace(action, refusals=())
        self._pending_feedback = self._pending_feedback or shown.failed
        if self._acted > self._settings.max_steps:
            return self._end("step_limit")
        messages = self._format.results(texts)
        if self._omega is not None:
            category = self._task.category
            plain = messages[-1]["content"]
            history = [earlier for turn in self._turns for earlier in turn.actions][:-1]
            augmented = observe_feedback(plain, shown, history, self._visible, self._omega, category, self._wording)
            messages[-1] = {**messages[-1], "content": self._watch.checked(plain, augmented)}
        return self._answer([_message(item["role"], item["content"]) for item in messages], shown)

    def _call(self, call: Call, available: bool) -> CallEvidence:
        name, arguments = call
        if self._enforces_availability and not available:
            outcome = CallOutcome(f"Error during execution: name '{name}' is not defined", "unavailable")
        else:
            outcome = self._guard.run(
                lambda: self._toolbox.call(name, arguments),
                lambda reason: CallOutcome(f"Error during execution: {reason}", "deadline"),
            )
        tool = name.strip()  # as the toolbox reads it
        broken = argument_violations(tool, arguments)
        return CallEvidence(tool, arguments, available, broken, outcome.error, outcome.text, tool in WRITES)

    # --- turns and the end --------------------------------------------------------

    def _close(self, stop: Stop) -> None:
        """End the turn; compare it where the official runner would."""
        turn = self._turn
        turn.stop = stop
        if stop == "answered" or (stop == "step_limit" and self._in_last_turn):
            expected = reference(self._task)[self._index]
            turn.comparison = compare(expected, self._toolbox.instances, bool(turn.calls), self._results)

    def _next_turn(self) -> Step:
        if self._in_last_turn:
            return self._end("answered")
        self._close("answered")
        self._turns.append(_Turn(feedback_before=self._pending_feedback))
        if self._index in self._task.withheld:
            self._show_tools()
        content = self._format.user(self._task, self._index)
        self._watch.saw(content)
        if self._omega is not None and self._index in self._task.withheld:
            revealed = revealed_tools(self._task, self._index)
            self._watch.reveal(revealed)
            augmented = observe_reveal(content, revealed, self._omega, self._task.category, self._wording)
            content = self._watch.checked(content, augmented)
        return self._answer([_message("user", content)], None)

    def _end(self, stop: Stop) -> Step:
        self._close(stop)
        self._ended = True
        self._valid = self._judge()
        return self._answer([_message("user", COMPLETED)], None)

    def _judge(self) -> bool:
        # The official runner fails a run that it cut, unless the cut fell in the last turn.
        judged = self._turn.stop in ("answered", "step_limit")
        if judged and self._in_last_turn:
            played = [[_played(call) for call in turn.calls] for turn in self._turns]
            if shares_state(self._task, played):
                return shared_verdict(self._task, played)
        return verdict(self._task, [turn.comparison for turn in self._turns], ended=judged)

    def _answer(self, state: list[Message], action: ActionEvidence | None) -> Step:
        errors = [call.error for call in action.calls if call.error] if action else []
        refused = "refusal" if action and action.refusals else None
        info = {
            "turn": self._index,
            "stop": self._turn.stop if self._ended else None,
            "error_class": errors[0] if errors else refused,
        }
        reward = float(self._valid)
        return {"state": state, "reward": reward, "is_terminated": self._ended, "info": info}


def _failed(turn: _Turn) -> bool:
    """Whether the turn is over and did not meet the verifier; a turn that a budget cut is nobody's fault."""
    return turn.stop not in ("open", "length", "step_limit") and not turn.comparison.passed


def _played(call: CallEvidence) -> Played:
    not_run = call.error in ("unavailable", "deadline")
    return Played(call.name, call.arguments, call.result if not_run else None)


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content, "tool_calls": []}
