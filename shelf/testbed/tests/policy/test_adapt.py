"""A start policy for an environment of one's own: the package that `seal env new` writes."""

import sys
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from env_service.environments import registry
from seal.cli.main import execute, load
from seal.system.paths import HOME
from shelf.authoring.scaffold import write_package
from shelf.testbed.policy.adapt import AdaptSettings, _lesson, adapt
from shelf.testbed.policy.chat import encode, plays

QUICKSTART = HOME / "data" / "quickstart_policy"


@pytest.fixture
def todo(tmp_path, monkeypatch):
    write_package("todo", tmp_path / "todo")
    monkeypatch.syspath_prepend(tmp_path / "todo")
    registry.register("todo", "todo_env.environment:TodoEnvironment")
    yield registry.get_environment("todo")
    registry._ADDED.pop("todo")
    registry._LOADED.pop("todo")
    for name in [name for name in sys.modules if name.startswith("todo_env")]:
        del sys.modules[name]


def likelihood(folder, environment, side: str) -> float:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tasks = environment.task_ids(side)[:8]
    dialogues = [encode(tokenizer, _lesson(environment, task, None)) for task in tasks]
    return plays(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), dialogues).sampled


@pytest.mark.slow
def test_it_plays_half_of_its_references_and_some_that_it_has_not_seen(todo, tmp_path):
    made = adapt(todo, QUICKSTART, tmp_path / "start", AdaptSettings(), lambda step, passes: None)
    assert made.tasks == 96 and made.passes >= 0.5 and made.lessons < 200
    assert likelihood(QUICKSTART, todo, "train") < 0.01
    assert likelihood(tmp_path / "start", todo, "train") > 0.3
    assert likelihood(tmp_path / "start", todo, "eval") > 0.02


def test_what_it_learns_is_what_the_service_says(todo):
    messages = _lesson(todo, "train-0", None)
    assert [message["role"] for message in messages][:3] == ["system", "user", "assistant"]
    assert messages[0]["content"] == "Keep the list.\nadd_item(item) remove_item(item) show_list()"
    assert sum(message["content"].startswith("<tool_response>") for message in messages) == 3


@pytest.fixture
def small(tmp_path):
    """A folder with a network of one narrow layer that speaks the small policy's tokens."""
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "layer_types": ["full_attention"]}
    config = AutoConfig.from_pretrained(QUICKSTART, num_attention_heads=2, num_key_value_heads=1, **shape)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "small")
    AutoTokenizer.from_pretrained(QUICKSTART).save_pretrained(tmp_path / "small")
    return tmp_path / "small"


def test_it_stops_at_its_budget_of_lessons_however_long_they_take(todo, small, tmp_path, monkeypatch):
    few, seen = todo.task_ids("train")[:6], []
    monkeypatch.setattr(type(todo), "task_ids", lambda *_: few)
    hours = count(step=3600.0)
    monkeypatch.setattr("shelf.testbed.policy.chat.time", SimpleNamespace(perf_counter=lambda: next(hours)))
    made = adapt(todo, small, tmp_path / "out", AdaptSettings(lessons=9), lambda step, _: seen.append(step))
    assert made.lessons == len(seen) == 9 and made.passes < 0.5


@pytest.mark.parametrize("place", ["small", "file"])
def test_what_is_at_the_place_of_the_policy_stays(todo, small, tmp_path, capsys, place):
    (tmp_path / "file").write_text("mine")
    file = tmp_path / place / "model.safetensors" if place == "small" else tmp_path / place
    before = file.read_bytes()
    asked = ["adapt", "todo", "--out", str(tmp_path / place), "--source", str(small), "--lessons", "1"]
    assert execute(load("policy"), asked, "seal policy") == 2
    assert "is not empty" in capsys.readouterr().err and file.read_bytes() == before


def test_a_folder_without_a_model_is_named(todo, tmp_path, capsys):
    asked = ["adapt", "todo", "--out", str(tmp_path / "x"), "--source", str(tmp_path / "none")]
    assert execute(load("policy"), asked, "seal policy") == 2
    assert f"{tmp_path / 'none'} is not an HF checkpoint" in capsys.readouterr().err


def test_an_environment_that_the_policy_cannot_read_is_refused(todo, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(type(todo), "formats", ("hermes",))
    assert execute(load("policy"), ["adapt", "todo", "--out", str(tmp_path / "x")], "seal policy") == 2
    assert "todo has no format compact" in capsys.readouterr().err
