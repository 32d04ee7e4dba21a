"""Packed rows against the same rows alone: log-probabilities, gradients, and no leak."""

import pytest
import torch
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from posttrain.data.rows import TokenRow, TokenTable
from posttrain.learning.models.attention import set_attention
from posttrain.learning.models.logprobs import batch_logprobs
from posttrain.learning.training.packing import check_packing, prepare_packing
from posttrain.stage.errors import UserError

SIZE = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}
KEYS = {"num_key_value_heads": 1}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZE, **KEYS)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZE, **KEYS)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZE)),
    # A window of 4 is shorter than the longest row, so it must count from each row's own start.
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZE, **KEYS, sliding_window=4)),
}
ROWS = [
    TokenRow((1, 9, 8, 7, 2), start=2),
    TokenRow((1, 5, 2), start=1),
    TokenRow((1, *range(10, 22), 2), start=4),
]


def model_of(name, attention="by_document"):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    # Larger weights than a fresh model's, so that attention depends on what it sees.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8)
    set_attention(model, attention)
    return model


def loss_and_gradient(model, *, packed, rows=ROWS):
    batch = TokenTable(rows, pad=0, packed=packed).batch(range(len(rows)))
    logprobs, mask = batch_logprobs(model, batch)
    model.zero_grad()
    (logprobs.sum() / mask.sum()).backward()
    gradient = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return [row[wanted].detach() for row, wanted in zip(logprobs, mask, strict=True)], gradient


@pytest.mark.parametrize("attention", ["sdpa", "eager", "by_document"])
@pytest.mark.parametrize("name", MODELS)
def test_packed_rows_give_the_log_probabilities_and_the_gradient_of_padded_ones(name, attention):
    model = model_of(name, attention)
    padded, gradient = loss_and_gradient(model, packed=False)
    packed, packed_gradient = loss_and_gradient(model, packed=True)
    for one, other in zip(padded, packed, strict=True):
        assert torch.allclose(one, other, atol=1e-5, rtol=0)
    assert gradient.keys() == packed_gradient.keys()
    for key, value in gradient.items():
        assert torch.allclose(value, packed_gradient[key], atol=1e-5, rtol=1e-5), key


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_block_masks_keep_rows_apart_too(name):
    """Flex attention as torch defines it: what torch 2.13 compiles for AVX2 is wrong (0020)."""
    model = model_of(name)
    model.set_attn_implementation("flex_attention")
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        packed, mask = batch_logprobs(model, TokenTable(ROWS, pad=0, packed=True).batch(range(3)))
        model.set_attn_implementation("sdpa")
        padded, _ = batch_logprobs(model, TokenTable(ROWS, pad=0).batch(range(3)))
    assert torch.allclose(packed[mask], padded[mask], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_changing_one_packed_row_leaves_the_others_bit_for_bit(name):
    model = model_of(name)
    before, _ = loss_and_gradient(model, packed=True)
    changed = [ROWS[0], TokenRow((1, 40, 2), start=1), ROWS[2]]
    after, _ = loss_and_gradient(model, packed=True, rows=changed)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[2], after[2])
    assert not torch.equal(before[1], after[1])


def test_rows_without_borders_would_leak():
    """The guard of the two tests above: told no positions, the same model does mix the rows."""
    model = model_of("llama")
    batch = TokenTable(ROWS, pad=0, packed=True).batch(range(3))
    leaky = TokenTable(ROWS, pad=0, packed=True).batch(range(3))
    leaky.packing.position_ids_BT.copy_(torch.arange(leaky.input_ids_BT.shape[1])[None])
    apart, mask = batch_logprobs(model, batch)
    mixed, _ = batch_logprobs(model, leaky)
    assert (apart - mixed)[1][mask[1]].abs().max() > 1e-3


def test_a_model_that_mixes_packed_rows_is_refused():
    model = model_of("llama")
    check_packing(model)
    inner = model.model.forward
    model.model.forward = lambda *, position_ids=None, **options: inner(**options)
    with pytest.raises(UserError, match="LlamaForCausalLM mixes packed rows: .* set packing to"):
        check_packing(model)


def test_attention_is_by_document_unless_the_recipe_asks_for_another():
    chosen, asked, unable = (model_of("llama", "sdpa") for _ in range(3))
    prepare_packing(chosen, None)
    assert chosen.config._attn_implementation == "by_document"
    prepare_packing(asked, "eager")
    assert asked.config._attn_implementation == "eager"
    unable.set_attn_implementation("eager")
    prepare_packing(unable, None)
    assert unable.config._attn_implementation == "eager"


def test_no_mask_over_all_packed_tokens_is_ever_made(monkeypatch):
    sizes = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def watched(query, key, value, attn_mask=None, **options):
        sizes.append(
            (query.shape[2], key.shape[2], None if attn_mask is None else attn_mask.numel())
        )
        return attend(query, key, value, attn_mask=attn_mask, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    loss_and_gradient(model_of("llama"), packed=True)
    # Two layers; rows of 5, 3 and 14 tokens.
    assert sizes == [(5, 5, None), (3, 3, None), (14, 14, None)] * 2
    sizes.clear()
    loss_and_gradient(model_of("mistral"), packed=True)
    # A window of 4: a piece sees the 3 keys before it, the first of a row none. Of a lone query the
    # two heads, which share their key, are laid one below the other by transformers.
    long = [(4, 4, None), (4, 7, 28), (4, 7, 28), (2, 5, 10)]
    assert sizes == [(4, 4, None), (2, 4, 4), (3, 3, None), *long] * 2


def test_recomputed_layers_attend_within_the_same_borders():
    model = model_of("llama").train()
    _, gradient = loss_and_gradient(model, packed=True)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    _, again = loss_and_gradient(model, packed=True)
    assert all(torch.equal(gradient[name], again[name]) for name in gradient)


def test_a_packed_batch_knows_where_its_rows_end_and_which_tokens_are_wanted():
    batch = TokenTable(ROWS, pad=0, packed=True).batch([1, 0])
    assert batch.input_ids_BT.tolist() == [[1, 5, 2, 1, 9, 8, 7, 2]]
    assert batch.packing.position_ids_BT.tolist() == [[0, 1, 2, 0, 1, 2, 3, 4]]
    assert batch.wanted_BT.int().tolist() == [[0, 1, 1, 0, 0, 1, 1, 1]]
    assert batch.packing.last_B.tolist() == [2, 7]
    assert batch.num_units == 5
