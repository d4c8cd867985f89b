"""The dialogue of a task with tools: messages in, observations, evidence and a verdict out.

One state machine serves every environment. A message without a call ends the user turn, and the last turn ends the
episode. The episode runs the calls in its own world and judges each turn when it ends, so an evaluation only reads what
was recorded. Observations of a training episode get the interface's cues (paper, section 3.3), and the evidence goes
through the rules of the diagnosis (paper, section 3.2). Behaviour specific to an environment is in its `Scene`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from env_service.answers import COMPLETED, Evaluation, Message, Opening, Step
from env_service.environments.base import Call, Guard, Refusal, UserFault
from env_service.environments.kit.blame import blame
from env_service.environments.kit.calls import Parsed
from env_service.environments.kit.scene import Scene, author_code, returned
from env_service.environments.kit.tasks import Check, Needed, Outcome
from env_service.environments.kit.tool_calls import NATIVE, ToolCalls, read_message
from seal.method.diagnosis.evidence import ActionEvidence, Blame, CallEvidence, Stop, TurnEvidence
from seal.method.diagnosis.rules import taxonomy_of
from seal.method.interface.feedback import observe_feedback
from seal.method.interface.guard import InterfaceLeak, LeakGuard
from seal.method.interface.observation import observe_reveal, observe_start
from seal.system.text import without_thoughts

_REPEATS = 6
"""A user must not answer this many different messages with the same words."""
_OFFER = re.compile(
    r"\b(can|may|could) I (help|assist|do for) you\b|\bI(\Wm| am) (here to (help|assist)|a helpful|an AI)\b",
    re.IGNORECASE,
)
"""What an assistant says first: a model that says this has forgotten that it plays the user."""


@dataclass
class _Turn:
    """The events of one user turn so far."""

    actions: list[ActionEvidence] = field(default_factory=list)
    stop: Stop = "open"
    check: Check = field(default_factory=Check)
    feedback_before: bool = False
    closed_by_tool: bool = False
    texts: list[str] = field(default_factory=list)

    @property
    def calls(self) -> list[CallEvidence]:
        return [call for action in self.actions for call in action.calls]

    @property
    def acted(self) -> int:
        """The number of messages that made a call or tried to."""
        return sum(bool(action.calls or action.refusals) for action in self.actions)

    @property
    def failed(self) -> bool:
        """True if the turn is over and did not pass its check; false if a budget cut it."""
        return self.stop not in ("open", "length", "step_limit") and not self.check.passed


class ToolEpisode:
    """A running dialogue of one task."""

    def __init__(self, scene: Scene, guard: Guard) -> None:
        """Set up the world; ValueError for an interface that is unreadable or comes with an evaluation split."""
        settings = scene.settings
        self._scene = scene
        self._guard = guard
        self._omega = settings.interface
        self._parse_errors = settings.on_parse_error(scene.category)
        self._max_steps = settings.max_steps or scene.max_steps
        self._wording = scene.format.cue_wording
        watched = settings.leak_guard and self._omega is not None
        self._turns = [_Turn()]
        self._awaits_user = scene.part is not None
        self._user_said: list[str] = []
        self._pending_feedback = False
        self._ended = self._valid = False
        self._blames: tuple[Blame | None, ...] | None = None
        with author_code():
            self._show_tools()
            self._leak_guard = LeakGuard(scene.secrets(), self._visible, self._wording) if watched else None
            self._world = scene.world()

    # --- the verbs ----------------------------------------------------------------

    @author_code()
    def start(self) -> Opening:
        scene, omega = self._scene, None
        content = scene.system()
        plain = len(content)
        users = [scene.user(0)] if scene.part is None else []
        self._saw(*users)
        if self._omega is not None:
            augmented = observe_start(content, self._visible, self._omega, scene.category, self._wording)
            content = self._checked(content, augmented)
            omega = {"version": self._omega.version, "digest": self._omega.digest}
        info = {
            "task_id": scene.task_id,
            "category": scene.category,
            "tools_count": len(self._visible),
            "questions_count": scene.turns,
            "omega": omega,
            "tool_prompt_mode": scene.format.name,
            **scene.info(),
        }
        if scene.settings.native and (scene.format.name == NATIVE or "<tool_call>" in scene.format.render_call("", {})):
            info["native"] = {**scene.native(), "cues": content[plain:]}
        state = [{"role": "system", "content": content}, *({"role": "user", "content": user} for user in users)]
        return {"state": state, "info": info, **({"user": scene.part.opening()} if scene.part else {})}

    def step(self, content: str, truncated: bool) -> Step:
        if self._ended:
            raise Refusal("The episode has ended: evaluate it, release it, or create another one.")
        if self._awaits_user:
            raise Refusal("The user speaks next: send the user's message.")
        self._saw(content)
        if truncated and self._scene.cut_ends(content):
            self._turn.actions.append(ActionEvidence(truncated=True))
            return self._end("length")
        parsed = self._scene.parse(content)
        self._turn.texts.append(without_thoughts(parsed.text).strip())
        if self._leak_guard is not None:
            self._leak_guard.saw_calls(parsed.calls)
        if parsed.refusals and self._parse_errors == "end_episode":
            return self._fail(parsed)
        if self._scene.stop_tool in (name.strip() for name, _ in parsed.calls):
            self._turn.closed_by_tool = True
            parsed = replace(parsed, calls=(), refusals=())  # it ends the turn like an answer, also after an error
        acts = bool(parsed.calls or (parsed.refusals and self._parse_errors == "feedback"))
        goes_on = self._turn.acted < self._max_steps if acts else not self._in_last_turn
        fatal = self._scene.fatal(content) if goes_on else None
        if fatal is not None:
            return self._fail(parsed, fatal)
        if acts:
            return self._act(parsed, truncated)
        self._turn.actions.append(ActionEvidence(refusals=parsed.refusals, truncated=truncated))
        return self._next_turn()

    def hear(self, content: str) -> Step:
        """The answer to a user message; UserFault for one that the user would not say, Refusal if none is awaited."""
        if self._ended or not self._awaits_user:
            raise Refusal("No message of the user is awaited: send the policy's.")
        text, entries = read_message(content)
        parsed = ToolCalls().parse(content) if entries else Parsed((), (), text)
        if fault := self._user_fault(parsed):
            raise UserFault(f"The user {fault}.")
        self._user_said.append(text)
        if parsed.calls:
            results = [self._scene.user_call(self._world, call).text for call in parsed.calls]
            return self._await_user([{"role": "tool", "content": result} for result in results])
        self._awaits_user = False
        if any(stop in text for stop in self._scene.part.stops):
            return self._end("answered")
        if self._turn.texts:
            self._close("answered")
            self._turns.append(_Turn(feedback_before=self._pending_feedback))
        self._saw(text)
        return self._answer([_message("user", text)], None)

    def evaluate(self, params: Mapping[str, Any]) -> Evaluation | float:
        """Return verdict, figures and labels; 1.0 or 0.0 when sparse.

        params["stop"] (length or step_limit) says that the caller ends the episode here, so that the turn
        that it cuts is diagnosed too; Refusal for another value or an unknown taxonomy.
        """
        cut = params.get("stop")
        if cut not in (None, "length", "step_limit"):
            raise Refusal(f"params.stop is {cut!r}: it is length, step_limit or left out.")
        if params.get("sparse"):
            return float(self._valid)
        taxonomy = str(params.get("taxonomy") or self._scene.settings.taxonomy)
        try:
            taxonomy_of(taxonomy)
        except ValueError as error:
            raise Refusal(f"params.taxonomy: {error}") from error
        return self._scene.assessment(self.evidence(cut), taxonomy, self._valid, self._ended)

    def describe(self) -> str:
        return "\n".join(f"{tool['name']}: {tool['description']}" for tool in self._visible)

    def evidence(self, cut: Stop | None = None) -> tuple[TurnEvidence, ...]:
        """Return what was observed in every turn of the task, including turns not reached.

        cut: how the open turn ended, if the caller knows that nothing more will come.
        """
        if self._scene.part is not None:
            return self._whole_evidence(cut)
        needed = [self._scene.needed(turn) for turn in range(self._scene.turns)]
        reached = [self._turn_evidence(n, needed[n], cut, blame=blame) for n, blame in enumerate(self._blame())]
        rest = enumerate(needed[len(reached) :], len(reached))
        return (*reached, *(TurnEvidence(turn, len(each.tools), stop="not_reached") for turn, each in rest))

    def _turn_evidence(self, index: int, needed: Needed, cut: Stop | None, **others: Any) -> TurnEvidence:
        turn = self._turns[index]
        return TurnEvidence(
            turn=index,
            expected_calls=len(needed.tools),
            actions=tuple(turn.actions),
            stop=cut or "open" if turn.stop == "open" else turn.stop,
            instances_match=turn.check.instances_match,
            state_match=turn.check.state_match,
            response_match=turn.check.response_match,
            feedback_before=turn.feedback_before,
            reference_error=needed.error,
            needed=needed.tools,
            needed_writes=needed.writes,
            absent=turn.check.absent,
            **others,
        )

    def _whole_evidence(self, cut: Stop | None) -> tuple[TurnEvidence, ...]:
        """The evidence of a dialogue that is judged as a whole, in its last turn."""
        before = self._turns[:-1]
        earlier = tuple(replace(call, arguments={}, result="", violations=()) for turn in before for call in turn.calls)
        judged = "passed" if self._valid else "later"
        unjudged = [self._turn_evidence(n, Needed((), ()), None, judged=judged) for n in range(len(before))]
        # Without a blame: an earlier call or the user may have caused a failure.
        whole = self._turn_evidence(len(before), self._scene.needed(None), cut, judged="dialogue", earlier=earlier)
        return (*unjudged, whole)

    def _blame(self) -> tuple[Blame | None, ...]:
        """Return whose fault the failure of each turn so far is; None for all turns if the episode is valid."""
        if self._valid:
            return (None,) * len(self._turns)
        if self._blames is not None:
            return self._blames
        # A turn that an unreadable message ended, or that has only such messages, fails from any state.
        tried = [any(action.refusals and not action.truncated for action in turn.actions) for turn in self._turns]
        fails = [t.stop == "parse_error" or (tried[i] and not t.calls) for i, t in enumerate(self._turns)]
        hopeless = [index for index, wrong in enumerate(fails) if wrong or self._lacks_stop_tool(index)]
        blames = blame(self._scene, [t.calls for t in self._turns], [t.failed for t in self._turns], hopeless)
        if self._ended:  # else it may continue: the caller of an evaluation need not say whether it does
            self._blames = blames
        return blames

    # --- what the interface may say -------------------------------------------------

    def _saw(self, *texts: str) -> None:
        """Tell the leak guard what the dialogue shows even without an interface."""
        if self._leak_guard is not None:
            self._leak_guard.saw(*texts)

    def _checked(self, plain: str, augmented: str) -> str:
        """The augmented text; Refusal if it reveals what only the reference knows."""
        try:
            if self._leak_guard is not None:
                self._leak_guard.check(plain, augmented)
        except InterfaceLeak as leak:
            raise Refusal(f"interface leak in {self._scene.task_id}: {leak}") from leak
        return augmented

    # --- one action ---------------------------------------------------------------

    @property
    def _turn(self) -> _Turn:
        return self._turns[-1]

    @property
    def _index(self) -> int:
        return len(self._turns) - 1

    @property
    def _in_last_turn(self) -> bool:
        return len(self._turns) == self._scene.turns

    def _show_tools(self) -> None:
        self._visible = tuple(self._scene.tools(self._index))
        self._names = {tool["name"] for tool in self._visible}

    def _fail(self, parsed: Parsed, *reasons: str) -> Step:
        """End an episode that cannot continue after its last message."""
        self._turn.actions.append(ActionEvidence(refusals=(*parsed.refusals, *reasons)))
        return self._end("parse_error")

    def _act(self, parsed: Parsed, truncated: bool) -> Step:
        calls = tuple(self._call(call) for call in parsed.calls)
        action = ActionEvidence(calls=calls, refusals=parsed.refusals, truncated=truncated)
        self._turn.actions.append(action)
        shown = action if self._parse_errors == "feedback" else replace(action, refusals=())
        texts = [*(call.result for call in calls), *(f"Error: {refusal}" for refusal in shown.refusals)]
        self._pending_feedback = shown.failed or (self._pending_feedback and all(call.error for call in calls))
        if self._turn.acted > self._max_steps or self._errs_too_often():
            return self._end("step_limit")
        messages = self._scene.format.results(texts)
        if self._omega is not None:
            plain, category = messages[-1]["content"], self._scene.category
            history = [earlier for turn in self._turns for earlier in turn.actions][:-1]
            augmented = observe_feedback(plain, shown, history, self._visible, self._omega, category, self._wording)
            messages[-1] = {**messages[-1], "content": self._checked(plain, augmented)}
        return self._answer([_message(item["role"], item["content"]) for item in messages], shown)

    def _call(self, call: Call) -> CallEvidence:
        (name, arguments), scene = call, self._scene
        tool, given = name.strip(), scene.own(arguments)
        available = tool in self._names
        broken = scene.violations(tool, arguments)
        outcome = scene.refused(name, available, broken) or self._guard.run(
            lambda: returned(self._world, "call", self._world.call(tool if available else name, given), Outcome),
            lambda reason: Outcome(scene.error(reason), "deadline"),
        )
        writes, reported = tool in scene.writes, outcome.error is None and scene.reports_failure(tool, outcome.text)
        return CallEvidence(tool, arguments, available, broken, outcome.error, outcome.text, writes, reported)

    def _errs_too_often(self) -> bool:
        limit = self._scene.error_limit
        errors = (call.error is not None for turn in self._turns for call in turn.calls)
        return limit is not None and sum(errors) >= limit

    # --- a user whom a model plays --------------------------------------------------

    def _await_user(self, told: list[dict[str, str]]) -> Step:
        if len(self._user_said) >= self._scene.part.max_messages:
            return self._end("step_limit")
        self._awaits_user = True
        return {**self._answer([], None), "user": told}

    def _user_fault(self, parsed: Parsed) -> str | None:
        """Why the user would not say this message; None if it could be the user's."""
        known = {tool["name"] for tool in self._scene.part.tools}
        if parsed.refusals:
            return f"makes a call that cannot be read: {parsed.refusals[0].rstrip('.')}"
        if foreign := [name for name, _ in parsed.calls if name not in known]:
            return f"calls {foreign[0][:64]!r}, which is not a tool of the user"
        if parsed.calls:
            return None
        if not parsed.text.strip():
            return "says nothing"
        if offer := _OFFER.search(parsed.text):
            return f"offers its help ({offer[0]!r}), so speaks in the policy's part"
        if "<tool_call>" in parsed.text or self._scene.parse(parsed.text).calls:
            return "calls a tool as the policy does, so speaks in its part"
        if not self._turn.texts and any(stop in parsed.text for stop in self._scene.part.stops):
            return "ends the dialogue before the policy has answered"
        said = [*self._user_said, parsed.text][-_REPEATS:]
        heard = [turn.texts[-1] for turn in self._turns[-_REPEATS:] if turn.texts]
        if len(said) == len(set(heard)) == _REPEATS and len(set(said)) == 1:
            return f"says the same {_REPEATS} times, to as many different messages"
        return None

    # --- turns and the end --------------------------------------------------------

    def _next_turn(self) -> Step:
        if self._scene.part is not None:
            return self._await_user([{"role": "user", "content": self._turn.texts[-1] or "(no answer)"}])
        if self._in_last_turn:
            return self._end("answered")
        self._close("answered")
        self._turns.append(_Turn(feedback_before=self._pending_feedback))
        content, revealed = self._scene.user(self._index), self._scene.revealed(self._index)
        self._saw(content)
        if revealed:
            self._show_tools()
        if revealed and self._omega is not None:
            if self._leak_guard is not None:
                self._leak_guard.reveal(revealed)
            augmented = observe_reveal(content, revealed, self._omega, self._scene.category, self._wording)
            content = self._checked(content, augmented)
        return self._answer([_message("user", content)], None)

    def _close(self, stop: Stop) -> None:
        """End the turn and judge it; a turn that needed the stop tool and did not call it fails."""
        turn, scene = self._turn, self._scene
        turn.stop = stop
        if scene.part is None and scene.judges(stop, self._in_last_turn):
            turn.check = scene.check(self._world, self._index, [played.calls for played in self._turns])
            if self._lacks_stop_tool(self._index):
                turn.check = replace(turn.check, response_match=False, absent=(*turn.check.absent, scene.stop_tool))

    def _lacks_stop_tool(self, index: int) -> bool:
        return self._scene.stop_tool in self._scene.needed(index).tools and not self._turns[index].closed_by_tool

    def _end(self, stop: Stop) -> Step:
        self._close(stop)
        self._ended, history = True, [turn.calls for turn in self._turns]
        if self._scene.part is not None:
            if self._scene.judges(stop, True):
                said = [text for turn in self._turns for text in turn.texts]
                self._turn.check = self._scene.judge(self._world, history, said)
                self._valid = self._scene.verdict(history, self._turn.check.passed)
        elif self._in_last_turn and self._scene.judges(stop, True):
            passed = all(turn.check.passed for n, turn in enumerate(self._turns) if self._scene.needed(n).tools)
            self._valid = self._scene.verdict(history, passed)
        return self._answer([_message("user", COMPLETED)], None)

    def _answer(self, state: list[Message], action: ActionEvidence | None) -> Step:
        errors = [call.error for call in action.calls if call.error] if action else []
        refused = "refusal" if action and action.refusals else None
        stop, error = self._turn.stop if self._ended else None, errors[0] if errors else refused
        info = {"turn": self._index, "stop": stop, "error_class": error}
        return {"state": state, "reward": float(self._valid), "is_terminated": self._ended, "info": info}


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content, "tool_calls": []}
