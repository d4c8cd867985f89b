"""The check of the model's own tool format: template, parser and verl's builder agree, or a sentence says why not."""

import json

import pytest

from seal.launch.checks.native import check_native
from seal.launch.checks.preflight import CHECKS
from seal.launch.recipe import Recipe, read_recipe
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from tests.support.templates import FAMILIES, family_tokenizer


def recipe(folder, family: str, *overrides: str, template: str | None = None) -> Recipe:
    tokenizer = family_tokenizer(family)
    tokenizer.save_pretrained(folder)
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": FAMILIES[family].model_type}), encoding="utf-8")
    settings = ("env_service.prompt_mode=native", f"actor_rollout_ref.model.path={folder}")
    parser = f"actor_rollout_ref.rollout.multi_turn.format={FAMILIES[family].parser}"
    return Recipe.of(read_recipe(HOME / "exp" / "quickstart.yaml", [*settings, parser, *overrides]).config)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_template_that_keeps_its_prefix_is_silent_and_another_is_told_of(tmp_path, family):
    assert len(check_native(recipe(tmp_path, family))) == (family in ("thinking", "gemma"))


@pytest.mark.parametrize(
    ("family", "overrides", "template", "named"),
    [
        ("hermes", ["actor_rollout_ref.rollout.multi_turn.format=hermess"], None, "one of hermes, gpt-oss"),
        ("coder", ["actor_rollout_ref.rollout.multi_turn.format=hermes"], None, "set it to qwen3_coder"),
        ("hermes", [], "{% for message in messages %}{{ message.content }}{% endfor %}", "does not show tools"),
        ("hermes", [], "{{ raise_exception('no system role') }}", "no system role"),
        ("hermes", ["actor_rollout_ref.model.path=nowhere/at/all"], None, "nowhere/at/all does not exist"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(tmp_path, family, overrides, template, named):
    with pytest.raises(LaunchError) as refused:
        CHECKS["tool format"](recipe(tmp_path, family, *overrides, template=template))
    assert named in str(refused.value) and "\n" not in str(refused.value)


def test_a_text_mode_needs_no_template_with_tools(tmp_path):
    assert CHECKS["tool format"](recipe(tmp_path, "hermes", "env_service.prompt_mode=compact", template="x")) == ()
