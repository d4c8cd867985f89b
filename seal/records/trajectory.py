"""One trajectory, as the trainer weighs it, logs hold it, and statistics read it."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, fields
from typing import Annotated, Any, Self

from pydantic import AllowInfNan, ConfigDict, Strict
from pydantic.dataclasses import dataclass

from env_service.answers import turn_counts
from env_service.environments.bfcl.splits import parse_task_id
from seal.diagnosis.categories import BENCHMARK, environment_of
from seal.labels import CORRECT_ABSTENTION, EXCLUDED, PASS
from seal.records.format import FORMAT, require_format
from seal.records.source import parse_data_source, scenario_of

MET = frozenset({PASS, CORRECT_ABSTENTION})
"""The labels of turns that met the verifier."""

PASS_SCORE = 1.0 - 1e-9
"""The score from which a task counts as passed."""

FATAL = frozenset({"environment_refused", "prompt_too_long", "token_path"})
"""Causes that no retry fixes and that a run must not train on: a wrong setting, an interface leak, or tokens that
differ from those that were sampled."""

FINAL = FATAL | {"environment_replay"}
"""Causes after which a trajectory is not started over: a service with other code or data would play another episode."""

CUTS = {
    "message_length": "length",
    "trajectory_length": "length",
    "model_length": "length",
    "actor_length": "length",
    "max_steps": "step_limit",
}
"""How a trajectory stopped when one of our budgets cut it, and what the service is told. In order:
seal.rollout.max_message_tokens, data.max_response_length, rollout.max_model_len, the actor's
ppo_max_token_len_per_gpu (in training), seal.rollout.max_steps (in training)."""

EVERY_CUE = "*"
"""What a trajectory of a withdrawal went without if it had no interface."""

NO_CUE = "-"
"""The same, if there was no cue that it could have gone without."""

Finite = Annotated[float, Strict(), AllowInfNan(False)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TrajectoryRecord:
    """One rollout of one task, or of a task's first turns.

    data_source: the category, with ``@k`` for a prefix of k turns; sample: the
    number of the rollout among those of the same task and step. labels: one
    dominant label Z(tau) per user turn that took place. turns: user turns of the
    task, 0 if unknown. spans: (turn, start, end) of each assistant message in
    response tokens. stop: completed, one of CUTS, or the service's word for an
    episode that it ended itself (step_limit, parse_error). excluded: it was cut
    and the recipe leaves such trajectories out. drift: how many tokens would
    differ if the dialogue were tokenised from its text, None if its template
    cannot say. rebuilt: how often its episode was opened again on a service.
    infra names the failure of infrastructure that ended it and infra_message
    describes it; such a record has no labels and its score means nothing.
    omega_version is None if the episode carried no Omega. step is the training
    step, None until the record is logged.

    For a replay: truncated are the numbers (from 0) of the assistant messages that
    a token limit cut; prompt_tokens is the length of the first prompt, length that
    of the whole dialogue when it was last compared with the budgets; day is the
    service's date, which one tool reads. For a trace: began is when the attempt
    that is recorded started, in seconds since the epoch, and times has for each
    assistant message when it was asked for, sampled and answered, in seconds since
    then. Of a training trajectory, once it is logged: group is the number of its
    prompt in the step (from 0), advantage is A_j before it is weighted, w is w_j,
    and span_weights has (start, end, factor) where single spans have a factor of
    their own; w is 0 for a trajectory that does not count. sampled: (text,
    natural log-prob) of each sampled token, by assistant message; empty unless the
    recipe logs tokens. withdrawn: of a trajectory of a withdrawal, the cue of Omega that
    it went without, "" for none, EVERY_CUE for all of them. tokens_in: tokens of the
    prompts of all its requests, None if the log does not say (see `prompted`). Of a
    training trajectory: drawn is the step that drew its prompt and gave it its Omega,
    weights are the oldest and the newest step whose weights sampled it (0: the start).
    inclusion: for how many rollouts it counts in C_t and in a step's mean reward
    (`seal.pilot`); 1 unless the step pilots its prompts.
    """

    task_id: str
    data_source: str
    category: str
    split: str
    sample: int
    score: Finite
    labels: tuple[str, ...] = ()
    diagnosis: tuple[dict[str, Any], ...] = ()
    evidence: tuple[dict[str, Any], ...] = ()
    spans: tuple[tuple[int, int, int], ...] = ()
    turns_passed: int = 0
    turns: int = 0
    progress: Finite = 0.0
    calls: int = 0
    errors: int = 0
    tokens: int = 0
    seconds: Finite = 0.0
    stop: str = ""
    excluded: bool = False
    drift: int | None = None
    rebuilt: int = 0
    infra: str | None = None
    infra_message: str = ""
    omega_version: int | None = None
    prompt_mode: str = ""
    data_hash: str = ""
    messages: tuple[dict[str, Any], ...] = field(default=())
    truncated: tuple[int, ...] = ()
    prompt_tokens: int = 0
    length: int = 0
    day: str = ""
    began: Finite = 0.0
    times: tuple[tuple[Finite, Finite, Finite], ...] = ()
    group: int | None = None
    advantage: Finite | None = None
    w: Finite | None = None
    span_weights: tuple[tuple[int, int, Finite], ...] = ()
    step: int | None = None
    sampled: tuple[tuple[tuple[str, Finite], ...], ...] = ()
    withdrawn: str | None = None
    tokens_in: int | None = None
    drawn: int | None = None
    weights: tuple[int, int] | None = None
    inclusion: Finite = 1.0

    @classmethod
    def of(cls, evaluation: Mapping[str, Any] | None, **known: Any) -> Self:
        """A record with the findings of the service's answer to /evaluate; None if the episode was not evaluated."""
        if evaluation is None:
            return cls(**known)
        names = ("labels", "diagnosis", "evidence", "turns", "progress", "calls", "errors")
        progress = turn_counts(evaluation)
        passed = progress["passed_turns"] + progress["passed_irrelevance_turns"]
        return cls(**known, **{name: evaluation[name] for name in names}, turns_passed=passed)

    @property
    def usable(self) -> bool:
        """Whether its reward and labels mean something and are to be learnt from."""
        return self.infra is None and not self.excluded

    @property
    def passed(self) -> bool:
        """Whether the whole task met the verifier."""
        return self.score >= PASS_SCORE

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
        """The scenario of the task; its variants in the four categories share it.

        A task of another environment is a scenario of its own.
        """
        return scenario_of(self.category, self.task_id)

    @property
    def environment(self) -> str:
        """The environment that played the task."""
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
        data = asdict(self)
        messages = data.pop("messages")
        # As in the lines of earlier versions, which certificates hold.
        for name in ("withdrawn", "tokens_in", "drawn", "weights"):
            if data[name] is None:
                del data[name]
        if self.inclusion == 1.0:
            del data["inclusion"]
        start = next((i for i, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
        head = {"format": FORMAT, "step": data.pop("step"), "input": messages[:start], "output": messages[start:]}
        return head | data

    def to_json(self) -> str:
        """One JSON text; the inverse of :meth:`from_json`."""
        return json.dumps(self.line(), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Rebuild a record from its JSON text."""
        return cls.from_line(json.loads(text))

    @classmethod
    def from_line(cls, value: Mapping[str, Any]) -> Self:
        """Rebuild a record from the line that :meth:`line` made; ValidationError if it is not one."""
        return cls(**_known(value))


def read_line(value: Mapping[str, Any], file_step: int | None = None) -> tuple[TrajectoryRecord, bool]:
    """The record of a log's line, and whether the line numbers its sample.

    Reads lines of this version, of earlier ones (no format; `turns` counted the
    turns that were reached) and of the public release (input, output, score,
    step, reward, task_id, data_source). file_step: the step of a line without
    one. Raises ValueError with one sentence for a line that cannot be used.
    """
    # An empty text stands for nothing, except that a trajectory of a withdrawal went without no cue.
    value = {key: found for key, found in value.items() if found not in (None, "") or (key, found) == ("withdrawn", "")}
    require_format(value)
    task = value.get("task_id")
    if not isinstance(task, str):
        raise ValueError("has no task_id; the log must name the task of each line")
    category = str(value.get("category", ""))
    if environment_of(category) == BENCHMARK:
        category, _ = parse_task_id(task)
    if "score" not in value and "infra" not in value:
        raise ValueError("has neither a score nor a cause (infra) for having none")
    if value.setdefault("step", file_step) is None:
        raise ValueError("has no step and the file's name gives none (<step>.jsonl)")
    known = {"split": "", "sample": 0, "score": 0.0} | _known(value)
    known |= {"category": category, "data_source": _source(value.get("data_source"), category)}
    if "format" not in value and isinstance(value.get("evidence"), list):
        # The evidence also holds the turns that were never reached: an episode that ends early must not raise the rate.
        known |= {"turns": len(value["evidence"]), "turns_passed": count_met(value.get("labels", ()))}
    if not {"turns", "turns_passed"} <= set(known):
        known |= {"turns": 0, "turns_passed": 0}
    return TrajectoryRecord(**known), "sample" in value


def count_met(labels: Iterable[str]) -> int:
    """How many of the turns met the verifier, abstentions included."""
    return sum(label in MET for label in labels)


def count_labels(rows: Iterable[Sequence[str]]) -> Counter[str]:
    """Turns by label; failures of the checker are left out."""
    return Counter(label for row in rows for label in row if label not in EXCLUDED)


def count_tokens(records: Iterable[TrajectoryRecord]) -> dict[str, int]:
    """Tokens `in` and `out` of some rollouts; without `in` if a rollout that ran to its end does not say."""
    records = tuple(records)
    prompted = [record.prompted for record in records if record.infra is None or record.prompted is not None]
    known = {} if None in prompted else {"in": sum(prompted)}
    return known | {"out": sum(record.tokens for record in records)}


def shares(counts: Mapping[str, int]) -> dict[str, float]:
    """Counts over their sum, in the same order; empty for nothing."""
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()} if total else {}


def _known(value: Mapping[str, Any]) -> dict[str, Any]:
    """The constructor's arguments in a line; a text (the release's) is a single message."""
    known = {name: found for name, found in value.items() if name in _FIELDS}
    messages = []
    for name, role in (("input", "user"), ("output", "assistant")):
        said = value.get(name, ())
        messages += [{"role": role, "content": said}] if isinstance(said, str) else said
    return known | {"messages": messages}


def _source(named: Any, category: str) -> str:
    """The line's data source; one that names no category (the release's) means whole tasks."""
    try:
        found, _ = parse_data_source(str(named))
    except ValueError:
        return category
    if found != category:
        raise ValueError(f"data_source {named!r} contradicts the task id's category {category!r}")
    return str(named)


_FIELDS = frozenset(each.name for each in fields(TrajectoryRecord))
