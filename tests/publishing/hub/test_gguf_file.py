"""GGUF of both families, read back by transformers; llama.cpp itself is not here."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config

from posttrain.learning.models.build import build_llama
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.publishing.hub import gguf_file
from posttrain.publishing.hub.gguf_file import LARGEST_GAP, export_gguf
from posttrain.stage.errors import UserError

pytest.importorskip("gguf")
pytestmark = pytest.mark.slow
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def tokenizer_cut(pieces):
    """One that cuts text by a regular expression, or as GPT-2 does, with merges of a few words."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    steps = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pieces is None)
    if pieces is not None:
        split = pre_tokenizers.Split(Regex(pieces), "isolated")
        steps = pre_tokenizers.Sequence([split, steps])
    backend.pre_tokenizer = steps
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["the sum of 12 and 30 is 42", "return the sum"] * 9, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<end>", pad_token="<end>", chat_template="{{ 1 }}"
    )


def saved(folder, config, tokenizer, dtype=torch.float32):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).to(dtype)
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.1 * torch.randn_like(each))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def qwen(tmp_path):
    """Biases, a tied head, bfloat16, and two rows that no token has."""
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    tokenizer = tokenizer_cut(PRETOKENIZE_REGEX)
    size = len(tokenizer) + 2
    config = Qwen2Config(vocab_size=size, eos_token_id=0, tie_word_embeddings=True, **SHAPE)
    return saved(tmp_path / "qwen", config, tokenizer, torch.bfloat16)


@pytest.fixture
def llama(tmp_path):
    """A head of its own, float32, and fewer keys than queries."""
    tokenizer = tokenizer_cut(None)
    config = LlamaConfig(vocab_size=len(tokenizer), eos_token_id=0, **SHAPE)
    return saved(tmp_path / "llama", config, tokenizer)


@pytest.mark.parametrize("family", ["qwen", "llama"])
def test_what_is_read_back_says_the_same(family, request, tmp_path):
    folder = request.getfixturevalue(family)
    found = export_gguf(folder, tmp_path / "m.gguf")
    assert found.largest_gap <= LARGEST_GAP
    assert found.tokens > 64
    assert [each.name for each in tmp_path.glob("*.gguf")] == ["m.gguf"]


def test_the_file_holds_the_tokenizer_and_every_weight_in_its_own_format(qwen, tmp_path):
    from gguf import GGUFReader

    export_gguf(qwen, tmp_path / "m.gguf")
    read = GGUFReader(tmp_path / "m.gguf")
    fields = {name: read.fields[name].contents() for name in read.fields if "tokenizer" in name}
    assert fields["tokenizer.ggml.pre"] == "qwen2"
    assert fields["tokenizer.ggml.tokens"][0] == "<end>"
    assert fields["tokenizer.ggml.tokens"][-1].startswith("[PAD")
    assert fields["tokenizer.chat_template"] == "{{ 1 }}"
    formats = {each.name: each.tensor_type.name for each in read.tensors}
    assert formats["blk.0.attn_q.weight"] == "BF16"
    assert formats["blk.0.attn_q.bias"] == "F32"
    assert "output.weight" not in formats


def test_a_file_that_answers_otherwise_is_not_left_there(llama, tmp_path, monkeypatch):
    right = gguf_file._weights

    def unturned(model):
        turned = dict(right(model))
        yield from (
            (name, turned[name] if "k_proj" not in name else own.detach())
            for name, own in model.named_parameters()
        )

    monkeypatch.setattr(gguf_file, "_weights", unturned)
    with pytest.raises(UserError, match=r"nothing is written"):
        export_gguf(llama, tmp_path / "m.gguf")
    assert not [*tmp_path.glob("*.gguf"), *tmp_path.glob(".partial*")]


def test_a_tokenizer_that_llama_cpp_would_not_cut_by_is_refused(tmp_path):
    tokenizer = train_tokenizer(["3 + 4 = 7"] * 9, vocab_size=270)
    build_llama(tokenizer, hidden=16, layers=2, heads=2, seed=0).save_pretrained(tmp_path / "own")
    tokenizer.save_pretrained(tmp_path / "own")
    with pytest.raises(UserError, match="has no name for how this tokenizer cuts text"):
        export_gguf(tmp_path / "own", tmp_path / "m.gguf")


def test_scaled_positions_are_refused(tmp_path):
    tokenizer = tokenizer_cut(None)
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    config = LlamaConfig(vocab_size=len(tokenizer), rope_parameters=rope, **SHAPE)
    folder = saved(tmp_path / "scaled", config, tokenizer)
    with pytest.raises(UserError, match="its positions are scaled; this writes plain models"):
        export_gguf(folder, tmp_path / "m.gguf")
