"""Every key is documented, refuses what is outside its bounds, and is on the page of settings."""

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Le

from seal.records.benchmark import CATEGORIES
from seal.settings import BLOCKS, EnvServiceSettings, SealSettings, SettingsError
from seal.settings.base import recipe_defaults
from seal.settings.data import Selection
from seal.settings.sentences import is_block
from shelf.operate.settings_page import kind


def fields(block, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, field in block.model_fields.items():
        yield f"{prefix}.{name}", field
        if is_block(field.annotation):
            yield from fields(field.annotation, f"{prefix}.{name}")


FIELDS = {key: field for name, block in BLOCKS.items() for key, field in fields(block, name)}
KEYS = {key: field for key, field in FIELDS.items() if not is_block(field.annotation)}


def defaults() -> dict[str, Any]:
    """The blocks of a recipe that sets nothing."""
    config = {name: recipe_defaults(block) for name, block in BLOCKS.items()}
    config["seal"]["name"] = "x"
    return config


def read(key: str, value: Any) -> Any:
    """The settings of a recipe that sets one key."""
    config = defaults()
    *path, last = key.split(".")
    block = config
    for name in path:
        block = block[name]
    block[last] = value
    return SealSettings.of(config), EnvServiceSettings.of(config)


def refused(key: str, value: Any) -> str:
    with pytest.raises(SettingsError) as error:
        read(key, value)
    sentence = str(error.value)
    assert sentence.startswith(error.value.key) and error.value.key.startswith(key)
    assert sentence.endswith((".", "?")) and "\n" not in sentence and "pydantic" not in sentence
    return sentence


def outside(annotation: Any, metadata: Any) -> Iterator[Any]:
    """Values just outside the bounds of a type, wherever it has some."""
    if get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
    for bound in metadata:
        if isinstance(bound, Ge):
            yield bound.ge - 1
        elif isinstance(bound, Gt):
            yield bound.gt
        elif isinstance(bound, Le):
            yield bound.le + 1
    if get_origin(annotation) is tuple:
        yield from ([value] for value in outside(get_args(annotation)[0], ()))
    elif get_origin(annotation) is not None and type(None) in get_args(annotation):
        yield from outside(get_args(annotation)[0], ())
    elif kind(annotation, metadata).bounds.startswith("one of"):
        yield "nonsense"


OUTSIDE = [(key, value) for key, field in KEYS.items() for value in outside(field.annotation, field.metadata)]


def test_the_defaults_of_the_tree_are_accepted():
    settings, service = read("seal.seed", 7)
    assert settings.seed == 7 and settings.data.val == (Selection(split="eval"),)
    assert service == EnvServiceSettings() and hash(service) == hash(EnvServiceSettings())


@pytest.mark.parametrize("key", FIELDS)
def test_every_key_has_a_description_of_one_sentence(key):
    description = FIELDS[key].description
    assert description and (description[0].isupper() or description.startswith("`"))
    assert description.endswith(".") and "\n\n" not in description


@pytest.mark.parametrize("key", KEYS)
def test_every_key_refuses_a_value_of_another_type(key):
    found = kind(KEYS[key].annotation, KEYS[key].metadata)
    wrong = 3 if found.type.startswith(("mapping", "text", "true")) else {"a": 1}
    refused(key, wrong)


@pytest.mark.parametrize(("key", "value"), OUTSIDE)
def test_every_bound_refuses(key, value):
    assert "it must be" in refused(key, value)


NUMBERS = [key for key, field in KEYS.items() if kind(field.annotation).type == "number"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("key", [*NUMBERS, "seal.reweighting.rho.pass"])
def test_every_number_is_finite(key, value):
    assert f"{key} is {value}; it must be a finite number" in refused(key, value)


def test_bounds_are_where_they_should_be():
    bounded = {key for key, _ in OUTSIDE}
    numbers = {*NUMBERS, *(key for key, field in KEYS.items() if kind(field.annotation).type == "whole number")}
    assert numbers - bounded == {
        "seal.seed",
        "seal.interface.evolve.mean_reward",
    }


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("seal.rollout.attempts", 1.5, "seal.rollout.attempts is 1.5; it must be a valid integer."),
        (
            "seal.infra_limit",
            float("nan"),
            "seal.infra_limit is nan; it must be a finite number.",
        ),
        ("seal.enabled", None, "seal.enabled is null; it must be a valid boolean."),
        ("seal.seed", True, "seal.seed is true; it must be a valid integer."),
        (
            "seal.data.train.limit",
            "x",
            "seal.data.train.limit is 'x'; it must be a valid integer.",
        ),
        ("seal.rewards", {}, "seal.rewards is not a setting; did you mean seal.reward?"),
        (
            "env_service.prompt_mod",
            "x",
            "env_service.prompt_mod is not a setting; did you mean env_service.prompt_mode?",
        ),
    ],
)
def test_the_sentence_says_what_the_value_is_and_may_be(key, value, sentence):
    assert refused(key, value) == sentence


def test_numbers_in_the_environment_of_processes_are_texts():
    settings, _ = read("seal.process_env", {"OMP_NUM_THREADS": 1})
    assert settings.process_env == {"OMP_NUM_THREADS": "1"}


def test_the_selection_knows_the_tasks_of_the_environment():
    assert kind(Selection.model_fields["categories"].annotation).bounds == f"each one of {', '.join(CATEGORIES)}"
