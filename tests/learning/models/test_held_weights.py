"""Frozen weights that are held narrow compute as the wide ones that they stand for."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from posttrain.learning.models.held_weights import (
    HeldEmbedding,
    HeldLinear,
    hold_as_stored,
    hold_in_bf16,
    plain_copy,
    release,
)
from posttrain.learning.models.hold import hold_as
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.models.nf4 import Nf4Linear

IDS = torch.tensor([[1, 5, 9, 30, 7, 2]])
WANTED = torch.arange(6)[None] > 1


def said(model):
    with torch.no_grad():
        return token_logprobs(model, IDS, wanted_BT=WANTED).logprobs_BT


def is_held(model):
    return any(isinstance(module, HeldLinear | HeldEmbedding) for module in model.modules())


def matrix(values):
    """One row of 64 weights: a block of NF4."""
    layer = nn.Linear(64, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(values).repeat(64 // len(values)))
        layer.bias.fill_(0.5)
    return layer


def test_nf4_takes_the_nearest_of_its_levels_times_the_largest_of_the_block():
    # QLoRA, appendix E: 0.4407 and 0.5626 are neighbors, and so are -0.6962 and -1.
    layer = matrix([2.0, 1.0, 0.0, -1.9])
    Nf4Linear.take(layer)
    # 1.0 / 2 lies between 0.4407 and 0.5626, whose middle is 0.5017: the lower one is nearer.
    expected = 2.0 * torch.tensor([1.0, 0.44070982933044434, 0.0, -1.0])
    assert torch.allclose(layer.weight[0, :4], expected, atol=1e-6)
    ones = torch.ones(1, 64)
    assert layer(ones).item() == pytest.approx(16 * float(expected.sum()) + 0.5, abs=1e-4)


def test_nf4_takes_half_a_byte_and_a_bit_more_for_its_scales():
    layer = nn.Linear(1024, 256, bias=False)
    Nf4Linear.take(layer)
    held = sum(buffer.numel() * buffer.element_size() for buffer in layer.buffers())
    count = 1024 * 256
    # Half a byte each, a byte for 64, four for 64 x 256, and the mean of the scales.
    assert held == count / 2 + count / 64 + 4 * count / (64 * 256) + 4
    assert not list(layer.parameters())


@pytest.mark.parametrize("weights", ["bf16", "nf4"])
def test_a_held_model_says_what_its_released_weights_say_and_passes_gradients(model, weights):
    hold_as(model, weights)
    assert is_held(model)
    plain = plain_copy(model)
    assert {type(m) for m in plain.modules()} == {type(m) for m in plain_copy(plain).modules()}
    assert not is_held(plain)
    assert all(p.dtype == torch.float32 and p.requires_grad for p in plain.parameters())
    assert torch.allclose(said(model), said(plain), atol=1e-5)
    gradients = []
    for each in (model, plain):
        norm = each.model.layers[0].input_layernorm.weight
        norm.requires_grad_(requires_grad=True)
        token_logprobs(each, IDS, wanted_BT=WANTED).logprobs_BT.sum().backward()
        gradients.append(norm.grad)
    assert torch.allclose(*gradients, atol=1e-5)
    assert gradients[0].abs().max() > 1e-3


@pytest.mark.parametrize("weights", ["bf16", "nf4"])
def test_the_graph_keeps_no_weight_and_no_input_of_a_held_layer(weights):
    layer = nn.Linear(64, 64, bias=False).requires_grad_(requires_grad=False)
    if weights == "nf4":
        Nf4Linear.take(layer)
    else:
        hold_in_bf16(layer)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        layer(torch.ones(2, 64, requires_grad=True))
    assert kept == []


def test_autocast_multiplies_in_its_own_type():
    layer = nn.Linear(8, 8)
    layer.__class__, layer.weight.data = HeldLinear, layer.weight.data.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(torch.ones(1, 8)).dtype == torch.bfloat16
    assert layer(torch.ones(1, 8)).dtype == torch.float32


def test_bf16_rounds_once_and_leaves_norms_and_a_tied_head_tied(tokenizer):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=40, num_hidden_layers=1, tie_word_embeddings=True, **sizes)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        # bfloat16 has 7 bits behind the point: 1 + 2^-9 becomes 1, in a norm it stays.
        model.lm_head.weight.fill_(1 + 2**-9)
        model.model.norm.weight.fill_(1 + 2**-9)
    hold_as(model, "bf16")
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert (type(model.lm_head), type(model.model.embed_tokens)) == (HeldLinear, HeldEmbedding)
    assert model.model.embed_tokens(torch.tensor([3])).dtype == torch.float32
    release(model)
    assert model.lm_head.weight.unique().tolist() == [1.0]
    assert model.model.norm.weight.unique().tolist() == [1 + 2**-9]


def test_an_embedding_that_does_more_than_look_up_is_not_held_nor_its_tied_head(tokenizer):
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "head_dim": 8}
    sizes |= {"num_key_value_heads": 1}
    model = Gemma3ForCausalLM(Gemma3TextConfig(vocab_size=300, num_hidden_layers=1, **sizes)).eval()
    before = said(model)
    hold_as(model, "bf16")
    assert model.lm_head.weight.dtype == torch.float32
    assert model.model.layers[0].mlp.up_proj.weight.dtype == torch.bfloat16
    assert 0 < (said(model) - before).abs().max() < 0.1


@pytest.mark.parametrize("weights", ["bf16", "nf4"])
def test_a_layer_whose_weight_is_read_without_a_call_is_not_held(weights):
    from transformers import MambaConfig, MambaForCausalLM

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}
    model = MambaForCausalLM(MambaConfig(vocab_size=40, **sizes)).eval()
    hold_as(model, weights)
    mixer = model.backbone.layers[0].mixer
    held = [name for name, layer in mixer.named_children() if isinstance(layer, HeldLinear)]
    assert held == ["in_proj", "x_proj"]
    assert mixer.dt_proj.weight.dtype == torch.float32
    assert bool(model(IDS).logits.isfinite().all())


def test_a_checkpoint_in_half_precision_has_one_digest_and_says_one_thing(
    model, tokenizer, tmp_path
):
    save_policy(model.to(torch.bfloat16), tokenizer, tmp_path)
    wide, narrow = load_policy(tmp_path).model, load_policy(tmp_path, dtype=None).model
    hold_as_stored(narrow)
    assert narrow.lm_head.weight.dtype == torch.bfloat16
    assert weights_digest(narrow) == weights_digest(wide)
    assert torch.allclose(said(narrow), said(wide), atol=1e-6)
    # What is stored in 2 bytes stays there under 4 bits: head and embeddings.
    hold_as(narrow, "nf4")
    assert narrow.lm_head.weight.dtype == torch.bfloat16
    assert isinstance(narrow.model.layers[0].self_attn.q_proj, Nf4Linear)


@pytest.mark.slow  # Imports torch in a process of its own.
def test_nothing_is_written_and_no_hub_is_asked_when_bitsandbytes_comes_in(tmp_path):
    (tmp_path / "kernels.py").write_text("raise SystemExit('kernels was imported')\n")
    lines = [
        "import sys",
        "from posttrain.learning.models.nf4 import import_bitsandbytes",
        "import_bitsandbytes()",
        "assert 'kernels' not in sys.modules",
    ]
    found = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
