"""Training mode computes what evaluation does, whatever an architecture calls its dropouts."""

import pytest
import torch
import transformers as hf

from posttrain.learning.training.dropout import without_dropout
from posttrain.stage.errors import UserError

SIZES = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
ALL = {"attention_dropout": 0.5, "hidden_dropout": 0.5, "dropout": 0.5, "activation_dropout": 0.5}
MODELS = {
    "Llama": hf.LlamaConfig(**SIZES, intermediate_size=16, attention_dropout=0.5),
    "GPT-NeoX": hf.GPTNeoXConfig(**SIZES, intermediate_size=16, **ALL),
    "OPT": hf.OPTConfig(**SIZES, ffn_dim=16, word_embed_proj_dim=16, **ALL, layerdrop=0.5),
    "Starcoder2": hf.Starcoder2Config(
        **SIZES, intermediate_size=16, num_key_value_heads=1, residual_dropout=0.5,
        embedding_dropout=0.5,
    ),
}  # fmt: skip
IDS = torch.arange(3, 13)[None]


@pytest.mark.parametrize("name", MODELS)
def test_training_mode_computes_what_evaluation_does(name):
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(MODELS[name])
    expected = model.eval()(IDS).logits
    assert not torch.equal(model.train()(IDS).logits, expected)
    before = torch.get_rng_state()
    without_dropout(model.eval())
    assert not model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.allclose(model.train()(IDS).logits, expected, atol=1e-6)


def test_a_model_that_reads_its_dropout_elsewhere_is_refused():
    model = hf.AutoModelForCausalLM.from_config(hf.FalconConfig(**SIZES, hidden_dropout=0.5))
    with pytest.raises(UserError, match="Falcon.* still drops at random in training mode"):
        without_dropout(model)
