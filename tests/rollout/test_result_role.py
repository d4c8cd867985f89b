"""Results that a policy reads under the role ipython pass through verl's token builder."""

import pytest
from transformers import AutoTokenizer
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from seal.launch.recipe import read_recipe
from seal.rollout.episode import _messages
from seal.system.paths import HOME

MARKS = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]


@pytest.fixture
def tokenizer():
    """A tokenizer with Llama's marks and the ToolACE recipe's template."""
    recipe = read_recipe(HOME / "exp" / "backbones" / "toolace_2_llama_3_1_8b.yaml", []).config
    tokenizer = AutoTokenizer.from_pretrained(HOME / "data" / "quickstart_policy")
    tokenizer.add_special_tokens({"additional_special_tokens": MARKS, "bos_token": MARKS[0]})
    tokenizer.chat_template = recipe.actor_rollout_ref.model.custom_chat_template
    return tokenizer


def test_results_are_appended_as_the_template_writes_the_whole_dialogue(tokenizer):
    builder = create_continuous_token_builder(tokenizer, hf_model_type="llama")
    opening = [{"role": "system", "content": "tools"}, {"role": "user", "content": "list my files"}]
    said = {"role": "assistant", "content": "[ls(), pwd()]"}
    answered = [{"role": "ipython", "content": text} for text in ('{"files": []}', '{"dir": "/"}')]
    results = _messages(answered)
    ids = builder.build_initial_tokens(opening)
    sampled = [*tokenizer.encode(said["content"], add_special_tokens=False), tokenizer.convert_tokens_to_ids(MARKS[3])]
    ids = builder.merge_assistant_tokens(ids, sampled).token_ids
    ids = builder.merge_context_tokens([*opening, said], [*opening, said, *results], ids).token_ids
    whole = tokenizer.apply_chat_template([*opening, said, *results], tokenize=False, add_generation_prompt=True)
    assert tokenizer.decode(ids) == whole
    assert whole.count("<|start_header_id|>ipython<|end_header_id|>") == 2
