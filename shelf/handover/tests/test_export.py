"""An export matches the checkpoint in weights, tokenizer, card and interface."""

import json
import re
import shutil

import pytest
import torch
from huggingface_hub import ModelCard
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer, Qwen3_5Config

from seal.cli.main import execute, load
from seal.records.folder import RunFolder
from seal.system.paths import HOME
from shelf.handover.card import LEADERBOARD, figures_of, model_card, stated_licence
from shelf.handover.export import export
from shelf.handover.source import Source, find_source
from shelf.handover.weights import merged_weights, write_model
from shelf.statistics.summary import tasks_in_words
from shelf.suites.serving import served_checkpoint
from tests.support.exported_run import POLICY, save_sharded, write_exportable

ASKED = [{"role": "user", "content": "Show me the files here."}]


def seal_export(*arguments) -> int:
    return execute(load("export"), [str(each) for each in arguments], "seal export")


def prompt(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.apply_chat_template(ASKED, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    return tokenizer, ids["input_ids"]


def greedy(model, folder) -> str:
    tokenizer, ids = prompt(folder)
    said = model.generate(ids, do_sample=False, max_new_tokens=24, pad_token_id=0)[0, ids.shape[1] :]
    return tokenizer.decode(said, skip_special_tokens=True)


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "model"
    assert seal_export(run, "--out", out) == 0
    return out


def test_the_model_answers_as_the_best_checkpoint_does(exported, models):
    model = AutoModelForCausalLM.from_pretrained(exported, dtype="auto")
    _, ids = prompt(exported)
    assert model.dtype == torch.float32  # as the run's rollouts had it
    assert torch.equal(model(ids).logits, models[2](ids).logits)
    assert not torch.equal(model(ids).logits, models[1](ids).logits)
    assert greedy(model, exported) == greedy(models[2], POLICY) != ""


def test_tokenizer_template_and_generation_are_the_policys(exported):
    for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
        assert (exported / name).read_bytes() == (POLICY / name).read_bytes()
    assert "lm_head.weight" not in load_file(exported / "model.safetensors")  # tied


@pytest.mark.parametrize("name", ["1", "checkpoints/global_step_1"])
def test_a_step_is_named_in_the_path(run, models, name, tmp_path):
    source = find_source(run / name)
    assert (source.step, source.run.path) == (1, run)
    weights = merged_weights(source.checkpoint / "actor")
    assert all(torch.equal(weights[key], value) for key, value in models[1].state_dict().items())


def test_half_precision_is_what_the_rollouts_had(tmp_path, models):
    run = write_exportable(tmp_path / "run", {1: models[1]}, None, "actor_rollout_ref.rollout.dtype=bfloat16")
    export(find_source(run), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert config["dtype"] == "bfloat16" and {each.dtype for each in weights.values()} == {torch.bfloat16}


def test_the_card_says_what_the_run_recorded(exported, run):
    card = ModelCard.load(exported / "README.md")
    text = " ".join(card.text.split())
    assert "`data/quickstart_policy` after step 2 of SEAL" in text
    assert str(HOME) not in card.content
    lines = (run / "validation_log" / "2.jsonl").read_text().split("\n")[:-1]
    whole = [line for line in map(json.loads, lines) if line["data_source"] == "base"]
    passed = 100 * sum(line["score"] for line in whole) / len(whole)
    (row,) = [line for line in card.content.splitlines() if line.startswith("| base |")]
    assert row.count("[") == 3 and f"{passed:.1f} [" in row.split("|")[4]
    figures = {each.dataset_config: each.metric_value for each in card.data.eval_results}
    assert figures["base"] == pytest.approx(passed) and "average" in figures
    assert "data `5e9f08dd" in text and "rollouts, " in text


def test_the_card_says_what_a_resume_changed(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    launches = copy / "seal_log" / "launches.jsonl"
    first = json.loads(launches.read_text())
    first["config"]["trainer"]["save_freq"] = 99
    again = json.loads(launches.read_text()) | {"step": 1}
    launches.write_text(f"{json.dumps(first)}\n{json.dumps(again)}\n")
    card = model_card(find_source(copy), "model", None, None, None)
    assert "| changed on a resume | after step 1 trainer.save_freq changes from 99 to " in card
    assert "changed on a resume" not in model_card(find_source(copy, 1), "model", None, None, None)


def test_the_card_counts_the_tasks_of_one_validation_alone(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    first, said = copy / "validation_log" / "0.jsonl", "have a verdict at one of these steps only"
    assert said not in model_card(find_source(copy), "model", None, None, None)
    lines = first.read_text().splitlines(keepends=True)
    first.write_text("".join(lines[1:]))
    assert f"1 tasks {said}" in model_card(find_source(copy), "model", None, None, None)


def test_the_card_says_the_length_of_a_recipe_that_names_only_its_parts(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    launches = copy / "seal_log" / "launches.jsonl"
    launch = json.loads(launches.read_text())
    launch["config"]["actor_rollout_ref"]["rollout"]["max_model_len"] = None
    launch["config"]["data"] |= {"max_prompt_length": 700, "max_response_length": 77}
    launches.write_text(f"{json.dumps(launch)}\n")
    assert "| length | 777 tokens |" in model_card(find_source(copy), "model", None, None, None)


def test_a_folder_of_a_recipe_is_no_name_on_the_hub_and_the_card_beside_the_command_is_not_the_models(
    run, tmp_path, monkeypatch
):
    copy = shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    monkeypatch.chdir(tmp_path)
    launches = copy / "seal_log" / "launches.jsonl"
    launch = json.loads(launches.read_text())
    bases = {}
    for path in ("~/start", "data/start", "Qwen/Qwen2.5-3B-Instruct"):
        launch["config"]["actor_rollout_ref"]["model"]["path"] = path
        launches.write_text(f"{json.dumps(launch)}\n")
        bases[path] = ModelCard(model_card(find_source(copy), "model", None, None, None)).data.base_model
    assert bases == {"~/start": None, "data/start": None, "Qwen/Qwen2.5-3B-Instruct": "Qwen/Qwen2.5-3B-Instruct"}
    launches.unlink()
    assert stated_licence(find_source(copy)) is None


def of_an_environment(run, copy):
    """The run, as if an environment of the user's own had played its tasks."""
    shutil.copytree(run, copy)
    for file in (copy / "validation_log").iterdir():
        lines = [json.loads(line) for line in file.read_text().split("\n")[:-1]]
        own = {"data_source": "todo/lists", "category": "todo/lists", "data_hash": "0123456789abcdef"}
        file.write_text("".join(json.dumps(line | own) + "\n" for line in lines if "@" not in line["data_source"]))
    launches = copy / "seal_log" / "launches.jsonl"
    facts = json.loads(launches.read_text())
    facts["config"]["env_service"]["prompt_modes"] = {"todo": "hermes"}
    facts["rows"] = {kind: [["todo/lists", *row[1:]] for row in rows] for kind, rows in facts["rows"].items()}
    launches.write_text(json.dumps(facts) + "\n")
    return copy


def test_the_card_names_the_tasks_that_were_played(exported, run, tmp_path):
    bfcl = ModelCard.load(exported / "README.md")
    assert "tasks passed (BFCL V3 multi-turn)" in bfcl.text and "bfcl-eval" in bfcl.text
    assert {each.dataset_type for each in bfcl.data.eval_results} == {LEADERBOARD}
    export(find_source(of_an_environment(run, tmp_path / "own")), tmp_path / "out")
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert "tasks passed (the environment todo)" in card.text and "data `0123456789abcdef`" in card.text
    assert "| prompt mode | `hermes` |" in card.text
    assert json.loads((tmp_path / "out" / "interface.json").read_text())["prompt_mode"] == "hermes"
    assert not re.search("bfcl|trading", card.content, re.IGNORECASE)
    assert {each.dataset_type for each in card.data.eval_results} == {"the environment todo"}
    assert (
        tasks_in_words(["synth_values_base", "todo/lists"])
        == "tasks synthesised on BFCL's tools and the environment todo"
    )


def test_validations_that_share_no_task_have_figures_without_a_change(tmp_path):
    (tmp_path / "validation_log").mkdir()
    for step, name in ((0, "shop/x"), (2, "bank/x")):
        line = {"task_id": "t", "data_source": name, "category": name, "score": 1.0}
        (tmp_path / "validation_log" / f"{step}.jsonl").write_text(json.dumps(line) + "\n")
    found = figures_of(Source(RunFolder(tmp_path), tmp_path, 2, "", None, {}))
    assert (found.at, list(found.after), found.changes) == ((0, 2), ["bank/x"], {})


def test_figures_of_another_step_are_not_the_models(run, tmp_path):
    export(find_source(run, 1), tmp_path / "out", licence="apache-2.0")
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert "Step 1 itself was not validated" in card.text and not card.data.eval_results
    assert card.data.license == "apache-2.0" and "`apache-2.0`" in card.text


def test_what_an_earlier_version_did_not_record_is_said(run, models, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "seal_log" / "launches.jsonl").unlink()
    assert seal_export(copy, "--out", tmp_path / "out") == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert "not recorded: the run is of an earlier version" in card and "step 2" in card
    assert not (tmp_path / "out" / "interface.json").exists()
    _, ids = prompt(POLICY)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert torch.equal(model(ids).logits, models[2](ids).logits)


def test_the_interface_is_the_checkpoints(exported, run):
    written = json.loads((exported / "interface.json").read_text())
    state = json.loads((run / "checkpoints" / "global_step_2" / "seal_state.json").read_text())
    assert written["omega"] == json.loads(state["state"])["loop"]["omega"]
    named = [written[name] for name in ("run", "step", "prompt_mode", "taxonomy")]
    assert named == ["small", 2, "compact", "paper"]


def test_a_run_of_adapters_gives_an_adapter_or_a_whole_model(tmp_path):
    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(POLICY), config).eval()
    run = write_exportable(tmp_path / "run", {1: model}, None, "actor_rollout_ref.model.lora_rank=4")
    assert seal_export(run, "--out", tmp_path / "adapter") == 0
    assert seal_export(run, "--out", tmp_path / "whole", "--merge-adapter") == 0
    _, ids = prompt(POLICY)
    adapter = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(POLICY), tmp_path / "adapter")
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
    assert torch.equal(adapter(ids).logits, model(ids).logits)
    torch.testing.assert_close(whole(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-4)
    assert not (tmp_path / "adapter" / "config.json").exists()
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["lora_alpha"] == 8
    assert "PeftModel" in (tmp_path / "adapter" / "README.md").read_text()


def test_a_model_that_takes_images_is_written_whole(tmp_path):
    sizes = {"hidden_size": 32, "intermediate_size": 64}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    text = {"vocab_size": 512, "num_hidden_layers": 1, "layer_types": ["full_attention"], **sizes, **heads}
    vision = {"depth": 1, "num_heads": 2, "out_hidden_size": 32, "num_position_embeddings": 16, **sizes}
    model = AutoModelForImageTextToText.from_config(Qwen3_5Config(text_config=text, vision_config=vision))
    save_sharded(model, tmp_path / "actor")
    assert write_model(tmp_path / "actor", tmp_path / "out", "float32", "") == "model"
    written = AutoModelForImageTextToText.from_pretrained(tmp_path / "out").state_dict()
    assert written.keys() == model.state_dict().keys()
    assert all(torch.equal(written[name], weight) for name, weight in model.state_dict().items())


def test_a_link_or_a_mounted_disk_is_refused_before_any_work(run, tmp_path, capsys):
    (tmp_path / "link").symlink_to(tmp_path)
    assert seal_export(run, "--out", tmp_path / "link") == 2
    assert "is a link, a mounted disk" in capsys.readouterr().err


def test_a_folder_that_holds_something_is_left_alone(run, tmp_path, capsys):
    (tmp_path / "x").write_text("mine")
    assert seal_export(run, "--out", tmp_path) == 2
    assert "is not empty" in capsys.readouterr().err and [each.name for each in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("named", "options", "said"),
    [
        ("none", (), "is not a folder"),
        ("small", ("--step", 9), "holds no whole checkpoint of step 9: it has 1, 2"),
        ("small/1", ("--step", 2), "names step 1 and --step 2"),
        ("small/seal_log", (), "has the run saved one"),
        ("small", ("--public",), "--public belongs to --push"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(run, tmp_path, capsys, named, options, said):
    assert seal_export(run.parent / named, "--out", tmp_path / "out", *options) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_damaged_checkpoint_leaves_nothing(run, models, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "copy")
    path = copy / "checkpoints" / "global_step_2" / "actor" / "model_world_size_2_rank_1.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert seal_export(copy, "--step", 2, "--out", tmp_path / "out") == 2
    assert "rank_1.pt is corrupt" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_missing_rank_and_foreign_weights_are_named(models, tmp_path):
    save_sharded(models[1], tmp_path / "actor")
    (tmp_path / "actor" / "model_world_size_2_rank_1.pt").unlink()
    with pytest.raises(ValueError, match="lacks the weights of rank 1 of 2"):
        merged_weights(tmp_path / "actor")
    (tmp_path / "actor" / "model_world_size_2_rank_0.pt").unlink()
    with pytest.raises(ValueError, match="holds no weights"):
        merged_weights(tmp_path / "actor")


@pytest.mark.slow
def test_vllm_says_what_the_checkpoint_says(exported, models, tmp_path):
    import requests

    with served_checkpoint(exported, "exported", "", tmp_path / "vllm.log") as url:
        body = {"model": "exported", "messages": ASKED, "temperature": 0, "max_tokens": 24}
        answer = requests.post(f"{url}/chat/completions", json=body, timeout=120).json()
    said = answer["choices"][0]["message"]["content"]
    assert re.sub(r"\s", "", said) == re.sub(r"\s", "", greedy(models[2], POLICY))
