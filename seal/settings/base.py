"""The base of every block of settings: a frozen model, read from a recipe's mapping or refused in one sentence."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from seal.settings.sentences import refusal

Count = Annotated[int, Ge(1)]
"""A whole number of at least 1."""
Share = Annotated[float, Ge(0), Le(1)]
"""A number from 0 to 1."""
NonZeroShare = Annotated[float, Gt(0), Le(1)]
"""A number above 0, at most 1."""


class Settings(BaseModel):
    """A block of settings. The docstring below a field is its description in `seal settings`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def read(cls, values: Mapping[str, Any], key: str = "") -> Self:
        """Read the block that the recipe calls `key`, from OmegaConf too; SettingsError for the first wrong key."""
        try:
            return cls.model_validate(plain(values))
        except ValidationError as error:
            raise refusal(cls, key, error.errors(include_url=False)) from None


def plain(value: Any) -> Any:
    """Mappings as dictionaries and sequences as tuples, at every depth."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return tuple(plain(item) for item in value)
    return value


def recipe_defaults(block: type[Settings]) -> dict[str, Any]:
    """The block as a recipe writes it: every key with its default, ??? for one that has none."""
    return {name: _recipe_default(field) for name, field in block.model_fields.items()}


def _recipe_default(field: Any) -> Any:
    if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
        return recipe_defaults(field.annotation)
    if field.is_required():
        return "???"
    return TypeAdapter(Any).dump_python(field.get_default(call_default_factory=True), mode="json", exclude_unset=True)
