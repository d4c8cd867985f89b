"""The tokenizer: what training sees, what rollouts see, and that they are the same tokens."""

import re

import pytest
from transformers import AutoTokenizer
from verl.utils.tokenizer.continuous_token_wiring import (
    get_continuous_token_builder_class,
    resolve_continuous_token_model_family,
)

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.splits import EVAL_SCENARIOS, TRAIN_SCENARIOS
from shelf.testbed.policy.corpus import (
    CorpusSettings,
    build_corpus,
    tokenizer_texts,
    training_tasks,
    vocabulary,
)
from shelf.testbed.policy.dialogue import parsed, tool_names
from shelf.testbed.policy.lessons import LessonSettings
from shelf.testbed.policy.tokenizer import END, TAGS, DialogueEncoder, train_tokenizer
from shelf.testbed.policy.variants import leaves
from tests.support.references import play_reference

SETTINGS = CorpusSettings(scenarios=(0, 10, 103, 160), variants=(("base", 2), ("miss_func", 1)))


def messages_of(groups):
    return [transcript.messages for group in groups for transcript in group]


@pytest.fixture(scope="module")
def groups():
    return build_corpus(SETTINGS, LessonSettings(), seed=0)


@pytest.fixture(scope="module")
def folder(groups, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    words = vocabulary([load_tasks()["multi_turn_base_0"]])
    tokenizer = train_tokenizer(
        tokenizer_texts(messages_of(groups), words), tool_names(), vocab_size=1024, context=2048
    )
    tokenizer.save_pretrained(path)
    (path / "config.json").write_text('{"model_type": "qwen2"}')
    return path


@pytest.fixture(scope="module")
def loaded(folder):
    return AutoTokenizer.from_pretrained(folder)


def ids_of(tokenizer, messages, **options):
    return tokenizer.encode(tokenizer.apply_chat_template(messages, tokenize=False, **options))


def test_training_tokens_are_those_of_the_chat_template(loaded, groups):
    encoder = DialogueEncoder(loaded)
    for dialogue in (dialogue for group in groups for dialogue in group):
        encoded = encoder.encode(dialogue.messages)
        assert list(encoded.ids) == ids_of(loaded, [dict(message) for message in dialogue.messages])
        assert len(encoded.ids) == len(encoded.spoken)


def test_what_the_assistant_says_and_its_end_are_marked_and_nothing_else(loaded, groups):
    messages = groups[0][0].messages
    encoded = DialogueEncoder(loaded).encode(messages)
    spoken = loaded.decode([token for token, said in zip(encoded.ids, encoded.spoken, strict=True) if said])
    assert spoken == "".join(message["content"] + END for message in messages if message["role"] == "assistant")


def test_a_rollout_in_the_trainer_builds_the_same_tokens(loaded):
    """Token by token as the agent loop does it: prompt, sampled message, boundary, observation."""
    family = resolve_continuous_token_model_family("auto", hf_model_type="qwen2")
    builder = get_continuous_token_builder_class(family)(loaded)
    messages = list(play_reference(load_tasks()["multi_turn_base_10"]).messages)
    tokens = builder.build_initial_tokens(messages[:2])
    for place in range(2, len(messages) - 1, 2):
        said = loaded.encode(messages[place]["content"] + END)
        tokens = builder.merge_assistant_tokens(tokens, said).token_ids
        seen = messages[: place + 1]
        tokens = builder.merge_context_tokens(seen, [*seen, messages[place + 1]], tokens).token_ids
    tokens += loaded.encode(messages[-1]["content"] + END + "\n")
    assert tokens == list(DialogueEncoder(loaded).encode(messages).ids)


def test_loading_gives_the_tokenizer_that_was_trained(folder, loaded, groups):
    words = vocabulary([load_tasks()["multi_turn_base_0"]])
    trained = train_tokenizer(tokenizer_texts(messages_of(groups), words), tool_names(), vocab_size=1024, context=2048)
    assert trained.get_vocab() == loaded.get_vocab()
    text = "Isn't 'temp_file.txt' in \"/a b/c\"?\n\n 12,000.50 caf\u00e9 get_stock_info"
    assert trained.encode(text) == loaded.encode(text)
    assert loaded.decode(loaded.encode(text)) == text


def test_tags_survive_decoding_and_the_end_is_the_end(loaded):
    call = '<tool_call>{"name":"sort","arguments":{}}</tool_call>'
    assert loaded.decode(loaded.encode(call + END), skip_special_tokens=True) == call
    assert all(len(loaded.encode(tag)) == 1 for tag in (*TAGS, "\n", "sort", "get_stock_info"))
    assert loaded.eos_token == END


def test_a_value_has_the_same_tokens_in_a_sentence_in_quotes_and_in_json(loaded):
    for task_id in ("multi_turn_base_1", "multi_turn_base_107", "multi_turn_base_163"):
        for turn in parsed(load_tasks()[task_id].reference):
            for value in (leaf for _, arguments in turn for leaf in leaves(arguments)):
                text = str(value)
                if re.fullmatch(r"[\w.]+", text):
                    core = loaded.encode(text)
                    for around in (" {} ", "'{}'", '"{}"', "({})", ":{},"):
                        before, after = map(loaded.encode, around.split("{}"))
                        assert loaded.encode(around.format(text)) == [*before, *core, *after]


def test_too_small_a_vocabulary_is_refused_with_the_number_it_needs():
    with pytest.raises(ValueError, match="need 270: raise it"):
        train_tokenizer(["a"], ["ls", "cd"], vocab_size=100, context=64)


def test_no_text_of_an_evaluation_scenario_reaches_the_tokenizer_or_the_corpus():
    variants = (("base", 1), ("miss_func", 0), ("miss_param", 0), ("long_context", 0))
    settings = CorpusSettings(TRAIN_SCENARIOS[::4], variants)
    dialogues = messages_of(build_corpus(settings, LessonSettings(), seed=1))
    seen = "\n".join(tokenizer_texts(dialogues, vocabulary(training_tasks(settings))))
    seen += "\n".join(message["content"] for messages in dialogues for message in messages)
    held = [task for task in load_tasks().values() if task.scenario in EVAL_SCENARIOS]
    assert len(held) == 400
    # One message of the evaluation side also occurs, word for word, in a training task.
    own = {text for task in load_tasks().values() if task.scenario not in EVAL_SCENARIOS for text in task.users}
    texts = {text for task in held for text in task.users if text and len(text) > 20}
    assert len(texts & own) == 1
    assert not [text for text in texts - own if text in seen]
    assert {task.scenario for task in training_tasks(CorpusSettings())}.isdisjoint(EVAL_SCENARIOS)


def test_evaluation_scenarios_are_refused_as_data():
    with pytest.raises(ValueError, match=r"Scenarios \[1\] belong to the evaluation side"):
        CorpusSettings(scenarios=(0, 1))
