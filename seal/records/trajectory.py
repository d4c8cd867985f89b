"""One trajectory, as the trainer weighs it, logs hold it, and statistics read it."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, Self

from pydantic import AllowInfNan, ConfigDict, Strict
from pydantic.dataclasses import dataclass

from seal.method.diagnosis.categories import environment_of
from seal.method.labels import EXCLUDED
from seal.records.format import FORMAT, upgrade
from seal.records.source import parse_data_source, scenario_of
from seal.system.causes import Cause

PASS_SCORE = 1.0 - 1e-9
"""The score from which a task counts as passed."""

FATAL: frozenset[Cause] = frozenset({"environment_refused", "prompt_too_long", "token_path"})
"""Causes that no retry fixes and that a run must not train on: a wrong setting, an interface leak, or tokens that
differ from those that were sampled."""

FINAL: frozenset[Cause] = FATAL | {"environment_replay"}
"""Causes after which a trajectory is not started over: a service with other code or data would play another episode."""

CUTS = {
    "message_length": "length",
    "trajectory_length": "length",
    "model_length": "length",
    "actor_length": "length",
    "max_steps": "step_limit",
}
"""Stops of trajectories that one of our budgets cut, with the stop that the service is told. In order:
seal.rollout.max_message_tokens, data.max_response_length, rollout.max_model_len, the actor's
ppo_max_token_len_per_gpu (in training), seal.rollout.max_steps (in training)."""

_LARGEST = 2**53
"""The largest count that statistics hold exactly."""

Finite = Annotated[float, Strict(), AllowInfNan(False)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TrajectoryRecord:
    """One rollout of one task, or of a task's first turns: a line of seal_log/trajectories and of validation_log."""

    # Identity
    task_id: str
    """The task, as its environment names it."""
    data_source: str
    """The category, with ``@k`` for a prefix of k turns."""
    category: str
    """The category of the task, qualified by its environment (`seal.method.diagnosis.categories`)."""
    split: str
    """The side of the task: train or eval."""
    sample: int
    """The number of the rollout, from 0, among those of the same task and step."""

    # Verdict
    score: Finite
    """The terminal reward; means nothing if `infra` is set."""
    labels: tuple[str, ...] = ()
    """One dominant label Z(tau) per user turn that took place; empty if `infra` is set."""
    diagnosis: tuple[dict[str, Any], ...] = ()
    """Per turn of `labels`: why it has its label."""
    evidence: tuple[dict[str, Any], ...] = ()
    """Per user turn of the task: what the diagnosis read."""
    turns_passed: int = 0
    """User turns that met the verifier."""
    turns: int = 0
    """User turns of the task; 0 if unknown."""
    progress: Finite = 0.0
    """Of the turns that need calls, the share that met the verifier."""
    calls: int = 0
    """Tool calls."""
    errors: int = 0
    """Tool calls that failed."""
    stop: str = ""
    """Why it ended: completed, one of CUTS, refusal (an endpoint's), failed (its harness says so of the policy), or a
    word of the service's (`step_limit`)."""
    excluded: bool = False
    """True if it was cut and the recipe excludes such trajectories."""
    silent: bool = False
    """True if its reward counts in its group's baseline but it gives no gradient."""
    infra: str | None = None
    """The failure of infrastructure that ended it: a Cause, or an endpoint's in an evaluation."""
    infra_message: str = ""
    """That failure, a refusal, a full context (an endpoint's words), or why a harness gave up."""

    # Conditions
    step: int | None = None
    """The training step; None until it is logged."""
    cluster: int | None = None
    """What the task shares with others of its group (`TaskRow.scenario`); None: nothing, or what its id says."""
    omega_version: int | None = None
    """The version of the Omega that its episode carried; None without one."""
    cues: tuple[str, ...] = ()
    """With a teacher: the cues that it saw."""
    documents: dict[str, Any] | None = None
    """With `seal.interface.teacher=retry`: the limit of these cues to tools (`Omega.limit`); None without one."""
    taught: bool = False
    """True if it was trained under the plain prompt, where it passed too; the dialogue is the one with cues."""
    withdrawal: str | None = None
    """In a withdrawal: `shown` with the interface, `hidden` without; earlier versions also hid one cue, by its name."""
    prompt_mode: str = ""
    """The prompt and parser format."""
    data_hash: str = ""
    """The hash of the benchmark's data."""

    # Tokens
    messages: tuple[dict[str, Any], ...] = field(default=())
    """The dialogue; a line of a log holds it as `input` and `output`."""
    tokens: int = 0
    """Sampled tokens."""
    tokens_in: int | None = None
    """Tokens of the prompts of all its requests; None if unknown (see `prompted`)."""
    rewritten: int = 0
    """With a harness: its dialogues with the policy beside the main one (a sub-agent, a history that it rewrote)."""
    trained_share: Finite = 1.0
    """With a harness: the share of the sampled tokens that is trained."""
    unsampled_calls: int = 0
    """With a harness: calls that reached the episode and that no sampled message holds."""
    spans: tuple[tuple[int, int, int], ...] = ()
    """(turn, start, end) of each assistant message, in response tokens (of the main dialogue)."""

    # Timing
    seconds: Finite = 0.0
    """Wall time."""
    times: tuple[tuple[Finite, Finite, Finite], ...] = ()
    """Per assistant message, the seconds since its start when it was asked for, sampled and answered."""
    rebuilt: int = 0
    """Times that its episode was opened again on a service."""
    attempts: int = 1
    """Times that it was started; all but the last were lost to infrastructure."""

    # Training, once it is logged
    group: int | None = None
    """The number of its prompt in the step, from 0."""
    advantage: Finite | None = None
    """A_j before it is weighted."""
    w: Finite | None = None
    """w_j; 0 for a trajectory that does not count."""
    drawn: int | None = None
    """The step that drew its prompt and gave it its Omega."""
    weights: tuple[int, int] | None = None
    """The oldest and the newest step whose policy weights sampled it (0: the start)."""

    # Replay
    truncated: tuple[int, ...] = ()
    """The numbers, from 0, of the assistant messages that a token limit cut."""
    prompt_tokens: int = 0
    """Tokens of the first prompt."""
    day: str = ""
    """The service's date, which one tool reads."""
    user: tuple[dict[str, Any], ...] = ()
    """If a model plays the user, its messages with who said them and their cost (`seal.rollout.user.Spoken`)."""

    @classmethod
    def of(cls, evaluation: Mapping[str, Any] | None, **known: Any) -> Self:
        """A record with what the service answered to /evaluate; evaluation: None if the episode was not evaluated."""
        if evaluation is None:
            return cls(**known)
        names = ("labels", "diagnosis", "evidence", "turns", "progress", "calls", "errors")
        progress = evaluation["progress_info"]
        passed = progress["passed_turns"] + progress["passed_irrelevance_turns"]
        return cls(**known, **{name: evaluation[name] for name in names}, turns_passed=passed)

    @property
    def usable(self) -> bool:
        """True if its reward and labels are valid and the recipe trains on them."""
        return self.infra is None and not self.excluded

    @property
    def passed(self) -> bool:
        """True if the whole task met the verifier."""
        return self.score >= PASS_SCORE

    @property
    def signals(self) -> frozenset[str]:
        """All labels whose rules fired in a turn, the dominant ones among them."""
        return frozenset(self.labels).union(*(turn.get("signals", ()) for turn in self.diagnosis))

    @property
    def prompted(self) -> int | None:
        """Tokens in: those of the prompt of each message, added up, as an endpoint counts them; None if unknown.

        An engine that keeps prefixes computes fewer.
        """
        if self.tokens_in is not None:
            return self.tokens_in
        return sum(self.prompt_tokens + start for _, start, _ in self.spans) if self.prompt_tokens else None

    @property
    def scenario(self) -> int:
        return scenario_of(self.category, self.task_id, self.cluster)

    @property
    def environment(self) -> str:
        return environment_of(self.category)

    @property
    def prefix(self) -> int:
        """The number of user turns that were asked for, WHOLE (-1) for all."""
        return parse_data_source(self.data_source)[1]

    @property
    def task(self) -> tuple[str, int]:
        """Task id and prefix: what is measured."""
        return self.task_id, self.prefix

    def line(self) -> dict[str, Any]:
        """The record as a line of a log: the messages up to the first answer are `input`, the rest `output`."""
        data = dict(vars(self))
        messages = data.pop("messages")
        start = next((i for i, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
        head = {"format": FORMAT, "step": data.pop("step"), "input": messages[:start], "output": messages[start:]}
        return head | data

    def to_json(self) -> str:
        return json.dumps(self.line(), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.from_line(json.loads(text))

    @classmethod
    def from_line(cls, value: Mapping[str, Any]) -> Self:
        """Rebuild a record from the line that :meth:`line` or the release made; ValueError if it is not one."""
        value, messages = upgrade(value), []
        for name, role in (("input", "user"), ("output", "assistant")):
            said = value.get(name, ())
            said = [{"role": role, "content": said}] if isinstance(said, str) else said
            messages += said if isinstance(said, list | tuple) else [said]
        known = {name: found for name, found in value.items() if name in cls.__dataclass_fields__}
        huge = [name for name, found in known.items() if isinstance(found, int) and abs(found) > _LARGEST]
        if huge:
            raise ValueError(f"{huge[0]} is a number of {len(str(known[huge[0]]))} digits: no run counts so far")
        return cls(**known | {"messages": messages})


def count_labels(rows: Iterable[Sequence[str]]) -> Counter[str]:
    """Turns by label; excluded labels are left out."""
    return Counter(label for row in rows for label in row if label not in EXCLUDED)


def count_tokens(records: Sequence[TrajectoryRecord]) -> dict[str, int]:
    """Tokens `in` and `out` of some rollouts; without `in` if a rollout that ran to its end does not say."""
    prompted = [record.prompted for record in records if record.infra is None or record.prompted is not None]
    known = {} if None in prompted else {"in": sum(prompted)}
    return known | {"out": sum(record.tokens for record in records)}


def count_user(records: Iterable[TrajectoryRecord]) -> dict[str, float]:
    """What the models that played the users of some rollouts did and cost; {} if none did."""
    said = [message for record in records for message in record.user]
    sums = {name: sum(m[name] for m in said) for name in ("requests", "tokens_in", "tokens_out", "seconds")}
    return {"messages": len(said)} | sums if said else {}


def shares(counts: Mapping[str, int]) -> dict[str, float]:
    """Counts over their sum, in the same order; empty for nothing."""
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()} if total else {}
