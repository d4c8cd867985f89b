"""The parameters of an episode: `params` of /create, checked."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError

from seal.method.diagnosis.rules import taxonomy_of
from seal.method.interface.cues import Omega, catalogue

EVALUATION_SPLITS = ("val", "validation", "validate", "test", "eval", "evaluation")

ParseErrors = Literal["end_turn", "feedback", "end_episode"]
"""The effect of an unreadable call: it ends the user turn, gets feedback on what is wrong, or ends the episode."""


class EpisodeParams(BaseModel):
    """`params` of /create. An unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    split: str = ""
    """The split that the task is played for; an evaluation split has no interface."""
    omega: dict[str, Any] | None = None
    """The interface as JSON."""
    tool_prompt_mode: str = ""
    """The prompt and parser format; by default the environment's first."""
    turns: StrictInt | None = None
    """Play the first user turns only."""
    enforce_available_tools: bool | None = None
    """Refuse calls of tools that are not visible; only the benchmark can run them."""
    max_steps: int | None = Field(default=None, ge=1, le=1000)
    """Messages with calls per user turn; by default the environment's own number."""
    taxonomy: str = "paper"
    """The rules that diagnose the episode."""
    parse_errors: ParseErrors | None = None
    """The effect of an unreadable call: by default feedback while a cue provides it, else the end of the turn."""
    native: bool = False
    """Answer /create with the tools, the instructions and the cues as data too, for an agent with tool calls."""
    user: bool = False
    """Let the caller send the user's messages, in a task whose user a language model can play."""
    leak_guard: bool = False
    """Refuse cues that reveal what only the task's reference knows."""

    def requested(self) -> Mapping[str, Any] | Omega | None:
        """The interface that the caller asks for."""
        return self.omega

    @cached_property
    def interface(self) -> Omega | None:
        """Omega as requested; ValueError names the wrong key, or the split that must run without Omega."""
        omega = self.requested()
        if omega is None:
            return None
        if self.split.lower() in EVALUATION_SPLITS:
            raise ValueError(f"params: split {self.split!r} is evaluated without an interface; leave omega out.")
        return omega if isinstance(omega, Omega) else Omega.from_json(omega)

    def on_parse_error(self, category: str) -> ParseErrors:
        """Return the effect of an unreadable call in a task of this category."""
        cues = self.interface.for_category(category) if self.interface is not None else ()
        feedback = any(catalogue()[cue].kind == "feedback" for cue in cues)
        return self.parse_errors or ("feedback" if feedback else "end_turn")


AnyParams = TypeVar("AnyParams", bound=EpisodeParams)


def read_settings(params: Mapping[str, Any], default: str, model: type[AnyParams]) -> AnyParams:
    """Check `params`; ValueError says which key is wrong and why. default: the format if `params` names none."""
    try:
        settings = model.model_validate({"tool_prompt_mode": default, **params})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise ValueError(f"params.{where} is unknown; choose from {', '.join(model.model_fields)}.") from None
        raise ValueError(f"params.{where}: {first['msg']}.") from None
    taxonomy_of(settings.taxonomy)
    return settings
