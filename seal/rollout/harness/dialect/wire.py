"""What the dialects share on the wire: how they read texts, calls and tools, and which wishes they refuse."""

import json
import logging
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, ValidationInfo

from seal.rollout.harness.messages import MODEL, Answer, Item, Request, meaning

logger = logging.getLogger(__name__)
TOLD: set[str] = set()
"""Fields without effect that this worker has reported."""
_QUIET = re.compile(
    "type|id|index|status|annotations|parsed.*|metadata|user|store|stream_options|service_tier|safety_identifier|"
    "cache_control|prompt_cache_.*"
)
"""Fields that no SDK sends to change the answer."""


def tell(fields: Mapping[str, Any]) -> None:
    """Report once which fields have no effect: most would only change the sampling, which the recipe decides."""
    for name, value in fields.items():
        if value is not None and name not in TOLD and not _QUIET.fullmatch(name):
            TOLD.add(name)
            logger.warning("a harness sends %s, which has no effect on the policy", name)


class Given(BaseModel):
    """A part of a request, without conversions, which reports the fields that it does not read."""

    model_config = ConfigDict(strict=True, extra="allow")

    def model_post_init(self, context: Any) -> None:
        tell(self.model_extra)


class Thought(Given):
    """What the policy thought, which later requests need not repeat."""


def _joined(content: Any, field: ValidationInfo) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    parts = content if isinstance(content, list) else [None]
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        raise ValueError("must be text or text parts")
    whole = field.field_name == "system" or field.data.get("role") == "assistant"
    return ("" if whole else "\n").join(part["text"] for part in parts)


Content = Annotated[str, BeforeValidator(_joined)]
"""Text, or text parts, of which vLLM makes lines too; declare it after the field `role`."""


def _as_shown(parameters: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in parameters.items() if value is not None}
    if not isinstance(shown.get("properties", {}), dict) or not isinstance(shown.get("required", []), list):
        raise ValueError("properties must be an object, and required a list")
    return shown


Schema = Annotated[dict[str, Any], AfterValidator(_as_shown)]
"""The JSON schema of a tool's arguments."""


def document(name: str, text: str | None, schema: dict[str, Any] | None) -> dict[str, Any]:
    """A tool as the policy's format shows it."""
    return {"name": name, "description": text or "", "parameters": schema or {"type": "object", "properties": {}}}


def call(name: str, arguments: str) -> tuple[str, Any]:
    """A call whose arguments are JSON text; ValueError if they are not."""
    try:
        return meaning(name, json.loads(arguments or "{}"))
    except (ValueError, RecursionError):
        raise ValueError("arguments must be JSON") from None


def _the_policy(name: str | None) -> str | None:
    if name not in (None, MODEL):
        raise ValueError(f"the gateway has only the model {MODEL!r}: ask another model at its own endpoint")
    return name


def as_text(form: Any) -> Any:
    """ValueError if the form of the answer is not text."""
    if form not in (None, {"type": "text"}):
        raise ValueError("the policy answers in text: leave it out, and read the answer yourself")
    return form


class Form(Given):
    """The answer's form, among other wishes."""

    format: Annotated[Any, AfterValidator(as_text)] = None


def _free(choice: Any, request: ValidationInfo) -> Any:
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind not in ((None, "auto") if request.data.get("tools") else (None, "auto", "none")):
        raise ValueError("the policy is free to call tools or not: leave it out or send auto")
    tell(choice if isinstance(choice, dict) else {})
    return choice


Choice = Annotated[Any, AfterValidator(_free)]
"""How a tool is chosen; declare it after the field `tools`."""


def _absent(value: Any) -> Any:
    if value not in (None, False, [], ""):
        raise ValueError("the gateway has no such thing: leave it out")
    return value


Absent = Annotated[Any, AfterValidator(_absent)]
"""A feature that would change the answer and that the gateway lacks."""


def by_type(default: str | None, *types: str) -> Discriminator:
    """How to distinguish the parts of a union: by `type`, or by the default without one."""
    return Discriminator(
        lambda part: (part.get("type") or default) if isinstance(part, dict) else None,
        custom_error_type="part",
        custom_error_message=f"must be of type {', '.join(types[:-1])} or {types[-1]}",
    )


def events(*told: Mapping[str, Any]) -> bytes:
    """Server-sent events that have their type as name."""
    return "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in told).encode()


class Asked(Given):
    """A request, with the fields that have the same meaning in each dialect."""

    model: Annotated[str | None, AfterValidator(_the_policy)] = None
    stream: bool | None = None

    @abstractmethod
    def asked(self) -> Request:
        """The request in the one form."""

    @abstractmethod
    def body(self, answer: Answer) -> dict[str, Any]:
        """The answer in this dialect."""

    @abstractmethod
    def events(self, body: Mapping[str, Any]) -> bytes:
        """The answer as server-sent events."""

    def keeps(self, body: Mapping[str, Any]) -> dict[str, tuple[Item, ...]]:
        """What later requests of the rollout may name instead of sending it again, by id."""
        return {}
