"""Making a policy: the same plan gives the same files, and the committed one is what its record says."""

import hashlib
import inspect
import json
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from env_service.environments.bfcl import catalog
from env_service.environments.bfcl.splits import EVAL_SCENARIOS
from seal.cli.main import execute, load
from seal.system.paths import HOME
from shelf.testbed.cli.policy import make as make_command
from shelf.testbed.policy.corpus import CorpusSettings
from shelf.testbed.policy.dialogue import open_episode
from shelf.testbed.policy.make import RECORD, Plan, make
from shelf.testbed.policy.synthetic import SyntheticSettings
from shelf.testbed.policy.tokenizer import END
from shelf.testbed.policy.warm_start import WarmStartSettings

COMMITTED = HOME / "data" / "quickstart_policy"
PLAN = Plan(
    size="tiny",
    vocab_size=512,
    corpus=CorpusSettings(scenarios=(0, 10, 103), variants=(("base", 2), ("miss_param", 1)), first_turn_share=0.5),
    synthetic=SyntheticSettings(count=30),
    training=WarmStartSettings(tokens=12_000, batch_tokens=2_000, warmup=2, opening=2_000),
)


@pytest.fixture(scope="module")
def record():
    return json.loads((COMMITTED / RECORD).read_text())


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The folder of a policy that the plan made."""
    make(PLAN, folder := tmp_path_factory.mktemp("made") / "first", ["make"], "cpu", Console(quiet=True))
    return folder


def test_the_same_plan_makes_the_same_files(first, tmp_path):
    make(PLAN, tmp_path / "second", ["make"], "cpu", Console(quiet=True))
    names = {path.name for path in first.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", RECORD} <= names
    for name in names - {RECORD}:  # the record tells the time that it took
        assert (first / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    model = AutoModelForCausalLM.from_pretrained(first)
    assert model.config.model_type == "qwen2" and model.dtype == torch.float32


def test_another_seed_makes_another_policy(first, tmp_path):
    made = json.loads((first / RECORD).read_text())
    other = make(replace(PLAN, seed=1), tmp_path / "other", ["make"], "cpu", Console(quiet=True))
    assert made["files_sha256"] != other["files_sha256"]
    assert made["corpus_sha256"] != other["corpus_sha256"]


def test_the_committed_policy_is_the_one_that_its_record_describes(record):
    for name, sha in record["files_sha256"].items():
        assert hashlib.sha256((COMMITTED / name).read_bytes()).hexdigest() == sha
    assert (COMMITTED / "model.safetensors").stat().st_size <= 12_000_000
    assert set(record["plan"]["corpus"]["scenarios"]).isdisjoint(EVAL_SCENARIOS)
    assert record["benchmark_data"] == catalog.data_hash()


def test_the_committed_policy_speaks_in_calls_and_ends_its_turns():
    tokenizer = AutoTokenizer.from_pretrained(COMMITTED)
    model = AutoModelForCausalLM.from_pretrained(COMMITTED)
    passed = 0
    for scenario in (0, 103, 105, 130, 142, 153):
        episode = open_episode(catalog.load_tasks()[f"multi_turn_base_{scenario}"].prefix(1), None, max_steps=10)
        messages, done = list(episode.start()["state"]), False
        while not done and len(messages) < 20:
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            prompt = torch.tensor([tokenizer.encode(text)])
            said = model.generate(prompt, do_sample=False, max_new_tokens=100)[0, prompt.shape[1] :].tolist()
            spoken = tokenizer.decode(said[:-1])
            answer = episode.step(spoken, truncated=said[-1] != tokenizer.convert_tokens_to_ids(END))
            messages += [{"role": "assistant", "content": spoken}, *answer["state"]]
            done = answer["is_terminated"]
        passed += episode.evaluate({})["valid"]
        assert any("<tool_call>" in message["content"] for message in messages)
    assert passed >= 1


def test_the_command_s_defaults_are_the_plan_s():
    given = {name: option.default for name, option in inspect.signature(make_command).parameters.items()}
    plan = Plan()
    settings = {**vars(plan.corpus), **vars(plan.lessons), **vars(plan.training), "size": plan.size, "seed": plan.seed}
    settings |= {"vocab": plan.vocab_size, "context": plan.context, "tasks": plan.synthetic.count}
    assert given.items() >= {name: settings[name] for name in given if name in settings}.items()
    assert len(given.keys() & settings.keys()) == 7


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["make", "--out", "x", "--cue-share", "3"], "cue_share must be between 0 and 1"),
        (["make", "--out", "x", "--size", "huge"], "'huge' is not one of"),
        (["band", "--log", "none.jsonl", "--out", "x", "--low", "1"], "is empty: give 0 <= low < high <= 1"),
    ],
)
def test_wrong_options_end_in_one_sentence(arguments, sentence, capsys):
    assert execute(load("policy"), arguments, "seal policy") == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
