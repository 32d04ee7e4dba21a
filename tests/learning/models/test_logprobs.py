import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from posttrain.learning.models import logprobs as module
from posttrain.learning.models.logprobs import token_logprobs, token_statistics


def naive(model, ids, *, temperature=1.0):
    """Log-probabilities and entropies of every token but the first, from the full logits."""
    logp = (model(input_ids=ids).logits[:, :-1] / temperature).log_softmax(-1)
    taken = logp.gather(-1, ids[:, 1:, None])[..., 0]
    return taken, -(logp.exp() * logp).sum(-1)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, 280, (4, 9), generator=generator)
    wanted = torch.rand(4, 9, generator=generator) < 0.5
    wanted[:, 0] = False
    return ids, wanted


# 1 element forces one token per chunk; 900 elements are 3 tokens of this vocabulary.
@pytest.mark.parametrize("chunk_elements", [1, 900, 1 << 24])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_entropies_are_those_of_the_full_softmax(
    model, batch, chunk_elements, temperature, monkeypatch
):
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk_elements)
    ids, wanted = batch
    logprobs, entropy = token_logprobs(
        model,
        ids,
        wanted_BT=wanted,
        temperature=temperature,
        with_entropy=True,
    )
    expected, expected_entropy = naive(model, ids, temperature=temperature)
    inside = wanted[:, 1:]
    assert torch.allclose(logprobs[:, 1:][inside], expected[inside], atol=1e-5)
    assert torch.allclose(entropy[:, 1:][inside], expected_entropy[inside], atol=1e-5)
    assert (logprobs[~wanted] == 0).all()
    assert (entropy[~wanted] == 0).all()


@pytest.mark.parametrize("chunk_elements", [900, 1 << 24])
def test_the_whole_distribution_has_the_drawn_tokens_and_their_entropy(
    model, batch, chunk_elements, monkeypatch
):
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk_elements)
    ids, wanted = batch
    found = token_statistics(
        model, ids, wanted_BT=wanted, temperature=0.7, with_entropy=True, with_distribution=True
    )
    log_all = found.log_all_NV
    assert log_all.requires_grad
    drawn = log_all.gather(1, ids[wanted][:, None])[:, 0]
    torch.testing.assert_close(drawn, found.logprobs_BT[wanted])
    torch.testing.assert_close(-(log_all.exp() * log_all).sum(-1), found.entropy_BT[wanted])


@pytest.mark.parametrize("chunk_elements", [900, 1 << 24])
def test_the_gradient_is_that_of_the_full_softmax(model, batch, chunk_elements, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk_elements)
    ids, wanted = batch
    weights = torch.linspace(-1, 2, int(wanted.sum()))
    expected, _ = naive(model, ids)
    (expected[wanted[:, 1:]] * weights).sum().backward()
    by_name = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    logprobs, _ = token_logprobs(model, ids, wanted_BT=wanted)
    (logprobs[wanted] * weights).sum().backward()
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter.grad, by_name[name], atol=1e-5), name


def test_right_padding_changes_nothing(model, batch):
    ids, wanted = batch
    plain, _ = token_logprobs(model, ids, wanted_BT=wanted)
    padding = torch.zeros(4, 3, dtype=torch.long)
    none = torch.zeros(4, 3, dtype=torch.bool)
    right, _ = token_logprobs(
        model, torch.cat([ids, padding], 1), wanted_BT=torch.cat([wanted, none], 1)
    )
    assert torch.allclose(right[:, :9], plain, atol=1e-6)


def test_logits_exist_only_where_they_are_wanted(model, batch):
    ids, _ = batch
    wanted = torch.zeros_like(ids, dtype=torch.bool)
    wanted[1, 4] = wanted[2, 7] = True
    seen = []
    head = model.get_output_embeddings()
    original = torch.nn.functional.linear

    def spy(inputs, weight, bias=None):
        if weight is head.weight:
            seen.append(tuple(inputs.shape))
        return original(inputs, weight, bias)

    torch.nn.functional.linear = spy
    try:
        token_logprobs(model, ids, wanted_BT=wanted)
    finally:
        torch.nn.functional.linear = original
    assert seen == [(2, 16)]


def test_the_first_token_has_no_log_probability(model, batch):
    ids, wanted = batch
    wanted[2, 0] = True
    with pytest.raises(ValueError, match="no past"):
        token_logprobs(model, ids, wanted_BT=wanted)


@pytest.mark.slow
def test_at_150_000_tokens_of_vocabulary_the_peak_is_at_most_a_quarter_of_the_naive_one(tmp_path):
    found = tmp_path / "memory.json"
    script = Path(__file__).parents[3] / "benchmarks/learner/memory.py"
    subprocess.run([sys.executable, str(script), "--json", str(found)], check=True)
    peaks = {
        (c["kind"], c["entropy"]): c["peak_mib"] for c in json.loads(found.read_text())["cases"]
    }
    for entropy in (False, True):
        assert 0 < peaks["chunked", entropy] <= peaks["naive", entropy] / 4
