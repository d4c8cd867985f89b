"""The contract of an environment: what it provides for training, evaluation and diagnosis.

An environment is a set of tasks that can be opened as episodes. An episode takes assistant messages and returns
messages; it can be evaluated at any moment without being changed. The service needs nothing else (`Playable`): it
provides lifecycles, processes, deadlines and HTTP. Training, cues and checks need `Teachable` too. Five rules make the
rest work; `seal env check` tests each of them:

- an episode is deterministic: the same task, parameters and messages give the same answers, so a replay rebuilds it;
- an episode owns its state: no other episode can see what it does;
- everything that a policy could make slow goes through `guard.run`;
- bad input raises ValueError (in a step, `Refusal`) with one sentence that says how to fix it;
- a step answers everything that a policy says: any other exception counts as a failure of the environment.

`kit` implements most of this for environments whose actions are tool calls; `registry.py` finds environments by name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from env_service.answers import Evaluation, Opening, Step
from seal.method.interface.secrets import Secrets

Result = TypeVar("Result")
Json = dict[str, Any]
"""Keys to JSON values; dataclasses among the values become objects."""

Side = Literal["train", "eval"]
"""A side of a split; a task may be on neither."""

Document = Mapping[str, Any]
"""A tool's public document: {"name", "description", "parameters": a JSON schema of an object}."""

Call = tuple[str, dict[str, Any]]
"""A tool's name and arguments."""


class Refusal(ValueError):
    """The caller's request is wrong: the message says in one sentence what is wrong and how to fix it."""


class UserFault(Refusal):
    """The caller sent a user message that the episode's user would not say: the message says what is wrong with it."""


class Guard:
    """Runs the calls of a step; the subclass that the service uses gives each a deadline."""

    def run(self, call: Callable[[], Result], refused: Callable[[str], Result]) -> Result:
        """The call's result, or `refused(reason)` if the call exceeded a limit when it was first made."""
        return call()


@dataclass(frozen=True)
class TaskFacts:
    """Facts about a task that need no episode.

    category: the name under which it is counted, without the environment's name. side: in the default split. group:
    tasks of one group share what training and evaluation must not both see. turns: the number of user turns.
    """

    id: str
    category: str
    side: Side | None
    group: str
    turns: int = 1


@dataclass(frozen=True)
class Split:
    """A way to divide the tasks. rule: says how, in one sentence. held_out: true if no group is on both sides."""

    rule: str
    held_out: bool


class EnvironmentEpisode(Protocol):
    """One running dialogue with a policy."""

    def start(self) -> Opening:
        """The answer to /create. Changes nothing."""

    def step(self, content: str, truncated: bool) -> Step:
        """The answer to /step; Refusal once the episode has ended. truncated: a length limit cut the message."""

    def evaluate(self, params: Mapping[str, Any]) -> Evaluation | float:
        """The answer to /evaluate; only the reward if params["sparse"] is true. Changes nothing."""

    def describe(self) -> str:
        """The answer to /get_info: the tools available now, as text."""


@runtime_checkable
class HearsUser(Protocol):
    """An episode whose caller also sends the user's messages: it awaits one after each answer that has `user`."""

    def hear(self, content: str) -> Step:
        """The answer to /step with a message of the user; UserFault for one that the user would not say."""


class Playable(Protocol):
    """A set of tasks that the service can play.

    name: as recipes and requests write it. formats: prompt and parser formats (`tool_prompt_mode`), the default first.
    """

    name: str
    formats: tuple[str, ...]

    def splits(self) -> Mapping[str, Split]:
        """The ways to divide the tasks, the default first. Sides are named train and eval, others NAME_train, ..."""

    def task_ids(self, split: str) -> Sequence[str]:
        """The ids of a category or of one side of a split, all ids for ""; ValueError for an unknown name."""

    def task(self, task_id: str) -> TaskFacts:
        """Return the facts about a task; ValueError for an unknown one."""

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> EnvironmentEpisode:
        """Start an episode; ValueError for an unknown task or bad parameters."""

    def prepare(self) -> Iterator[None]:
        """Preparatory work in pieces of a few milliseconds; a worker runs one piece whenever it is idle."""

    def version(self) -> Json:
        """Return the versions that results depend on: data_hash, and the versions of packages."""


class Teachable(Protocol):
    """The knowledge about the tasks that cues, the leak guard, the diagnosis and the checks need.

    writes: the tools that can change the state that the verifier compares. ungrounded: labels
    that no evidence of this environment can ground, with the reason; their rules are off here.
    """

    writes: frozenset[str]
    ungrounded: Mapping[str, str]

    def documents(self, task_id: str) -> Sequence[Document]:
        """The tools that a task shows at its start: schema cues may describe these."""

    def reference(self, task_id: str) -> Sequence[Sequence[Call]]:
        """The reference's calls by user turn. Never shown to a policy."""

    def secrets(self, task_id: str) -> Secrets:
        """The secrets of the task's reference, for the leak guard."""

    def render(self, name: str, call: Call) -> str:
        """The assistant text of one call in a format; ValueError for an unknown format."""

    def closing(self, name: str) -> str:
        """The assistant text that ends a user turn after its calls, in a format."""


class Environment(Playable, Teachable, Protocol):
    """An environment to train on: it is playable and teachable."""
