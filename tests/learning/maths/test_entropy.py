import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from posttrain.learning.maths.entropy import entropy_from_hidden, entropy_from_logits


def naive(logits):
    logprobs = logits.log_softmax(-1)
    return -(logprobs.exp() * logprobs).sum(-1)


@pytest.mark.parametrize("chunk_size", [1, 3, 7, 100])
def test_equals_the_definition_in_any_chunks(chunk_size):
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(2, 4, 7, generator=generator, dtype=torch.float64)
    got = entropy_from_logits(logits, chunk_size=chunk_size)
    torch.testing.assert_close(got, naive(logits))
    hidden = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    weight = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    got = entropy_from_hidden(hidden, weight, chunk_size=chunk_size)
    torch.testing.assert_close(got, naive(hidden @ weight.T))


def test_known_distributions():
    # Chances 1/2 1/4 1/4: (1 + 2 + 2) / ... = 1/2 x 1 + 2 x 1/4 x 2 = 1.5 bits.
    half = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64).log()
    assert entropy_from_logits(half).item() == pytest.approx(1.5 * math.log(2))
    assert entropy_from_logits(torch.zeros(5, 1000)).tolist() == pytest.approx(
        [math.log(1000)] * 5, rel=1e-6
    )


def test_forbidden_tokens_and_extreme_logits():
    forbidden = torch.tensor(
        [[0.0, -math.inf, 0.0, -math.inf], [-math.inf, 3.0, -math.inf, -math.inf]]
    )
    for chunk_size in (1, 2, 4):
        logits = forbidden.clone().requires_grad_()
        entropy = entropy_from_logits(logits, chunk_size=chunk_size)
        assert entropy.tolist() == pytest.approx([math.log(2), 0.0])
        entropy.sum().backward()
        assert torch.isfinite(logits.grad).all()
    # A shift changes nothing, not even of a size at which exp would overflow.
    far = torch.tensor([[1e4, 1e4 - 1.0], [-1e4, -1e4 - 1.0], [0.0, -1.0]], dtype=torch.float64)
    assert entropy_from_logits(far, chunk_size=1).tolist() == pytest.approx(
        [naive(far[2]).item()] * 3
    )


@pytest.mark.parametrize("chunk_size", [2, 5])
def test_gradients_in_float64(chunk_size):
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(3, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: entropy_from_logits(z, chunk_size=chunk_size), logits)
    hidden = torch.randn(3, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda h, w: entropy_from_hidden(h, w, chunk_size=chunk_size), (hidden, weight)
    )


def test_half_precision_is_widened():
    logits = torch.randn(4, 500, generator=torch.Generator().manual_seed(2)).bfloat16()
    leaf = logits.clone().requires_grad_()
    entropy = entropy_from_logits(leaf, chunk_size=64)
    torch.testing.assert_close(entropy, naive(logits.float()))
    entropy.sum().backward()
    assert leaf.grad.dtype == torch.bfloat16


class LargestWide(TorchDispatchMode):
    """Watches how many numbers the largest float32 tensor has that an operation makes."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.dtype == torch.float32:
            self.numel = max(self.numel, made.numel())
        return made


@pytest.mark.parametrize("trained", [True, False])
def test_a_head_of_two_bytes_is_widened_slice_by_slice(trained):
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(96, 8, generator=generator).bfloat16()
    hidden = torch.randn(5, 8, generator=generator)

    def found(weight, trained):
        own, head = hidden.clone().requires_grad_(), weight.clone().requires_grad_(trained)
        with LargestWide() as largest:
            entropy = entropy_from_hidden(own, head, chunk_size=16)
            entropy.sum().backward()
        return entropy, own.grad, head.grad, largest.numel

    entropy, of_hidden, of_head, most = found(weight, trained)
    wide_entropy, wide_of_hidden, wide_of_head, _ = found(weight.float(), True)
    assert entropy.equal(wide_entropy)
    assert of_hidden.equal(wide_of_hidden)
    assert most == 16 * 8
    if trained:
        # Written down in two bytes, as autograd does where a whole copy was widened.
        assert of_head.equal(wide_of_head.bfloat16())
    else:
        assert of_head is None
