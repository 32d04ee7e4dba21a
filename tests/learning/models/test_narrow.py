import pytest
import torch
from torch.nn import functional as F

from posttrain.learning.models import narrow
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.models.narrow import head_product, narrow_weights, widen_weights


@pytest.fixture
def factors():
    drawn = torch.Generator().manual_seed(0)
    hidden = torch.randn(5, 16, generator=drawn)
    weight = torch.randn(37, 16, generator=drawn).bfloat16()
    return hidden, weight, torch.randn(37, generator=drawn).bfloat16()


@pytest.mark.parametrize("elements", [1 << 22, 16 * 10])
def test_products_with_a_narrow_head_are_those_of_the_same_numbers_in_float32(
    factors, elements, monkeypatch
):
    # Slices of ten rows do not divide 37.
    monkeypatch.setattr(narrow, "_SLICE_ELEMENTS", elements)
    hidden, weight, bias = factors
    ours = [each.clone().requires_grad_() for each in factors]
    theirs = [each.float().requires_grad_() for each in factors]
    found, wanted = head_product(*ours), F.linear(*theirs)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted)
    pull = torch.linspace(-1, 1, found.numel()).view_as(found)
    (found * pull).sum().backward()
    (wanted * pull).sum().backward()
    torch.testing.assert_close(ours[0].grad, theirs[0].grad)
    for own, other in zip(ours[1:], theirs[1:], strict=True):
        assert own.grad.dtype == torch.bfloat16
        torch.testing.assert_close(own.grad, other.grad.bfloat16())


def test_a_frozen_head_gets_no_gradient(factors):
    hidden, weight, _ = factors
    hidden.requires_grad_()
    head_product(hidden, weight, None).sum().backward()
    assert weight.grad is None
    torch.testing.assert_close(hidden.grad, weight.float().sum(0).expand(5, -1))


def test_weights_are_halved_in_place_and_nothing_else_changes(model):
    head = model.get_output_embeddings().weight
    assert head is model.get_input_embeddings().weight
    exact = {name: p.detach().bfloat16() for name, p in model.named_parameters()}
    buffers = {name: (b.dtype, b.clone()) for name, b in model.named_buffers()}
    narrow_weights(model)
    narrow_weights(model)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight is head
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, exact[name])
    for name, buffer in model.named_buffers():
        assert buffer.dtype == buffers[name][0]
        assert torch.equal(buffer, buffers[name][1])
    widen_weights(model)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_sampler_and_trainer_read_the_same_unrounded_logits(model):
    narrow_weights(model)
    ids = torch.randint(3, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = model(input_ids=ids).logits
        wanted = torch.ones_like(ids, dtype=torch.bool)
        wanted[:, 0] = False
        ours = token_logprobs(model, ids, wanted_BT=wanted).logprobs_BT
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())
    theirs = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    torch.testing.assert_close(ours[:, 1:], theirs)


def test_a_digest_is_of_the_numbers_and_not_of_how_they_were_loaded(model, tokenizer, tmp_path):
    narrow_weights(model)
    save_policy(model, tokenizer, tmp_path)
    wide, half = (load_policy(tmp_path, dtype=d).model for d in (torch.float32, None))
    assert half.dtype == torch.bfloat16
    assert weights_digest(wide) == weights_digest(half) == weights_digest(model)
    with torch.no_grad():
        half.model.norm.weight[0] = 2.0
    assert weights_digest(half) != weights_digest(wide)
