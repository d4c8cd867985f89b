"""Lessons for a pretrained model: its own template, what has a loss, and what is refused."""

from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from env_service.environments.bfcl.catalog import available_tools
from env_service.environments.bfcl.formats import get_format
from seal.cli.main import execute, load
from seal.system.paths import HOME
from shelf.testbed.policy.chat import ChatSettings, Encoded, encode, learn, lesson_loss, lessons, plays
from shelf.testbed.policy.dialogue import reference_dialogue
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from shelf.testbed.synthesis.sampler import SHOWN, short
from shelf.testbed.tests.policy.tiny import tiny

POLICY = HOME / "data" / "quickstart_policy"
MESSAGES = [
    {"role": "system", "content": "Tools."},
    {"role": "user", "content": "Which files are here?"},
    {"role": "assistant", "content": "<tool_call>ls</tool_call>"},
    {"role": "user", "content": "a.txt"},
    {"role": "assistant", "content": "Done."},
]


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(POLICY)


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32)


def test_a_task_of_few_documents_shows_what_it_needs_and_passes_in_the_models_prompt():
    form = get_format("bfcl_qwen_fc")
    for made in synthesise(Grammar(), 6, 50, "train", short(3_000)):
        tools = available_tools(made.task, 0)
        assert SHOWN[0] <= len(tools) <= SHOWN[1] and made.category == "base" and len(made.users) <= 2
        assert {call.split("(")[0] for calls in made.reference for call in calls} <= {tool["name"] for tool in tools}
        assert len(form.system(tools)) < 4_000
        assert reference_dialogue(made.task, "bfcl_qwen_fc")[0]["content"] == form.system(tools)


def test_a_lesson_is_the_chat_templates_text_and_what_the_assistant_says_ends_with_its_end(tokenizer):
    lesson = encode(tokenizer, MESSAGES)
    whole = tokenizer.apply_chat_template(MESSAGES, tokenize=False)
    assert tokenizer.decode(lesson.ids) == whole.rstrip("\n")
    said = [token for token, own in zip(lesson.ids, lesson.spoken, strict=True) if own]
    assert tokenizer.decode(said) == "<tool_call>ls</tool_call><|im_end|>Done.<|im_end|>"


def test_a_template_that_changes_earlier_messages_is_refused(tokenizer, monkeypatch):
    forgetful = "{% for m in messages[-2:] %}{{ m.role + m.content + '<|im_end|>' }}{% endfor %}"
    monkeypatch.setattr(tokenizer, "chat_template", forgetful)
    with pytest.raises(ValueError, match="changes earlier messages"):
        encode(tokenizer, MESSAGES)


def test_half_of_the_lessons_show_the_interface_and_a_wrong_message_is_never_taught(tokenizer):
    made = [*islice(lessons(tokenizer, ChatSettings(longest=10_000)), 40)]
    texts = [tokenizer.decode(lesson.ids) for lesson in made]
    shown = [place for place, text in enumerate(texts) if "# Notes on the tools" in text]
    corrected = [place for place in shown if "Continue with a corrected call" in texts[place]]
    assert 12 <= len(shown) <= 28 and 4 <= len(corrected) < len(shown)
    for place in corrected:
        taught = tokenizer.decode(
            [token for token, own in zip(made[place].ids, made[place].spoken, strict=True) if own]
        )
        assert texts[place].count("<|im_start|>assistant") == taught.count("<|im_end|>") + 1
        assert '_tool"' not in taught and '_value":' not in taught
    plain = islice(lessons(tokenizer, ChatSettings(longest=10_000, interface=False)), 10)
    assert not any("# Notes on the tools" in tokenizer.decode(lesson.ids) for lesson in plain)


def test_the_loss_is_that_of_the_whole_dialogue(tokenizer, model):
    lesson = encode(tokenizer, MESSAGES)
    ids, spoken = torch.tensor([lesson.ids]), torch.tensor(lesson.spoken)
    logits = model(ids[:, :-1]).logits[0]
    whole = torch.nn.functional.cross_entropy(logits[spoken[1:]], ids[0, 1:][spoken[1:]])
    torch.testing.assert_close(lesson_loss(model, lesson), whole, rtol=0, atol=1e-5)


def test_it_learns_until_the_lessons_or_the_minutes_end():
    lesson = Encoded(tuple(range(20, 60)), (False,) * 20 + (True,) * 20)
    model, steps = tiny(), []
    learn(model, [lesson] * 30, ChatSettings(lessons=30, lr=3e-3), steps.append)
    assert len(steps) == 30 and steps[-1].loss < 0.5 * steps[0].loss
    learn(model, [lesson] * 30, ChatSettings(lessons=30, minutes=1e-9), pytest.fail)


def test_what_it_plays_is_what_decoding_gives(tokenizer, model):
    asked = MESSAGES[:2]
    prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**prompt, do_sample=False, max_new_tokens=64)[0, prompt["input_ids"].shape[1] :]
    own = [*asked, {"role": "assistant", "content": tokenizer.decode(answer[:-1])}]
    assert answer[-1] == tokenizer.eos_token_id
    mine, other = plays(model, [encode(tokenizer, own)]), plays(model, [encode(tokenizer, MESSAGES)])
    assert mine.greedy == 1.0 and other.greedy == 0.0 and mine.sampled > 1e3 * other.sampled


def warm_start(*arguments) -> int:
    return execute(load("policy"), ["warm-start", *map(str, arguments)], "seal policy")


def test_a_model_is_taught_and_written_in_its_own_type(tmp_path, monkeypatch):
    monkeypatch.setattr("shelf.testbed.policy.chat.PROBED", 3)
    out = tmp_path / "out"
    assert warm_start("--model", POLICY, "--out", out, "--lessons", 2, "--prompt-mode", "compact") == 0
    made = AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    before = AutoModelForCausalLM.from_pretrained(POLICY, dtype="auto")
    assert made.dtype == before.dtype and not torch.equal(made.lm_head.weight, before.lm_head.weight)
    assert AutoTokenizer.from_pretrained(out).chat_template == AutoTokenizer.from_pretrained(POLICY).chat_template


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("config.json", "is not an HF checkpoint"),
        ("model.safetensors", "holds no weights"),
        ("chat_template.jinja", "has no chat template"),
        ("memory", "takes 0.0 GB of memory and 0.0 GB are free"),
        ("out", "is not empty"),
    ],
)
def test_what_cannot_be_taught_is_refused_in_a_sentence(tmp_path, monkeypatch, capsys, change, sentence):
    model, out = tmp_path / "model", tmp_path / "out"
    model.mkdir()
    for file in POLICY.iterdir():
        if file.name != change:
            (model / file.name).symlink_to(file)
    if change == "memory":
        monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1_000))
    if change == "out":
        (out / "mine").mkdir(parents=True)
    assert warm_start("--model", model, "--out", out) == 2
    said = capsys.readouterr().err
    assert sentence in said and len(said.splitlines()) == 1
    assert [*tmp_path.iterdir()] == [model] or (change == "out" and [*out.iterdir()] == [out / "mine"])


def test_lessons_that_never_fit_are_refused(tokenizer, monkeypatch):
    monkeypatch.setattr("shelf.testbed.policy.chat.TRIED", 3)
    with pytest.raises(ValueError, match="fits 300 of the model's tokens"):
        next(lessons(tokenizer, ChatSettings(longest=300)))


@pytest.mark.parametrize("mode", ["native", "openai_fc"])
def test_a_mode_whose_calls_an_api_reads_is_not_taught(tmp_path, capsys, mode):
    assert warm_start("--model", POLICY, "--out", tmp_path / "out", "--lessons", 1, "--prompt-mode", mode) == 2
    assert f"--prompt-mode {mode} has no text for calls" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", [("warm-start", "--model", str(POLICY)), ("adapt", "bfcl")])
def test_a_command_without_threads_is_refused(tmp_path, capsys, command):
    asked = [*command, "--out", str(tmp_path / "out"), "--threads", "0"]
    assert execute(load("policy"), asked, "seal policy") == 2
    assert "--threads" in capsys.readouterr().err


def test_lessons_follow_from_the_seed(tokenizer):
    first, again, other = (
        next(lessons(tokenizer, ChatSettings(seed=seed, prompt_mode="compact"))) for seed in (50, 50, 51)
    )
    assert first == again != other
