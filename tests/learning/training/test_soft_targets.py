"""Losses over a teacher's likeliest tokens, against sums over the vocabulary worked out by hand."""

import math

import pytest
import torch

from posttrain.data.rows import RowFacts, TokenRow, TokenTable
from posttrain.data.soft_targets import SoftTargets, TaughtRow, TaughtRows, learned_places
from posttrain.learning.models import token_slices
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.learning.models.supports import OfSupport, likeliest_tokens, on_support
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.training.row_losses.base import LearnedTokens
from posttrain.learning.training.row_losses.soft_targets import SoftTargetsLoss
from posttrain.learning.training.token_batches import loss_by

P, Q = [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]


def kl(one, other):
    return sum(p * math.log(p / q) for p, q in zip(one, other, strict=True))


def mixed(weight, one=P, other=Q):
    return [weight * p + (1 - weight) * q for p, q in zip(one, other, strict=True)]


def tokens(teacher, policy, *, rest=(0.0, 0.0), temperature=1.0, own=-1.5):
    """One token, of which the probabilities of the teacher's tokens and of the rest are these."""
    logs = [torch.tensor([each], dtype=torch.float64).log() for each in (teacher, policy)]
    rests = [torch.tensor([each], dtype=torch.float64).log() for each in rest]
    ids = torch.arange(len(teacher))[None]
    one = torch.ones(1, dtype=torch.float64)
    own_N = torch.tensor([own], dtype=torch.float64)
    return LearnedTokens(
        own_N,
        one > 0,
        one,
        one > 0,
        0 * one,
        0 * one,
        None,
        SoftTargets(ids, logs[0], rests[0], temperature),
        OfSupport(own_N, logs[1], rests[1]),
    )


BY_HAND = {
    "forward_kl": ({}, kl(P, Q)),
    "reverse_kl": ({}, kl(Q, P)),
    "jensen_shannon": ({"weight": 0.1}, 0.1 * kl(P, mixed(0.1)) + 0.9 * kl(Q, mixed(0.1))),
    "skew_forward_kl": ({"weight": 0.1}, kl(P, mixed(0.1))),
    "skew_reverse_kl": ({"weight": 0.1}, kl(Q, mixed(0.9))),
}


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("others", ["bucket", "renormalized"])
def test_with_all_tokens_it_is_the_divergence_of_the_whole_vocabulary(name, others):
    settings, expected = BY_HAND[name]
    part = SoftTargetsLoss(divergence=name, others=others, **settings)
    assert part.losses(tokens(P, Q)).item() == pytest.approx(expected)


def test_tokens_beyond_the_likeliest_are_one_outcome_or_count_for_nothing():
    """Of P and Q the last token is not among the likeliest."""
    given = tokens(P[:2], Q[:2], rest=(P[2], Q[2]))
    bucket = SoftTargetsLoss().losses(given).item()
    assert bucket == pytest.approx(kl(P, Q))
    # 5/8 and 3/8 of the teacher against a half each.
    alone = SoftTargetsLoss(others="renormalized").losses(given).item()
    assert alone == pytest.approx(kl([0.625, 0.375], [0.5, 0.5]))


def test_a_bucket_of_several_tokens_gives_less_than_they_do_apart():
    teacher, policy = [0.5, 0.3, 0.1, 0.1], [0.2, 0.2, 0.5, 0.1]
    given = tokens(teacher[:2], policy[:2], rest=(0.2, 0.6))
    for name in ("forward_kl", "reverse_kl"):
        found = SoftTargetsLoss(divergence=name).losses(given).item()
        whole = kl(teacher, policy) if name == "forward_kl" else kl(policy, teacher)
        assert 0 < found < whole


def test_the_temperature_squared_weighs_soft_targets_beside_hard_ones():
    given = tokens(P, Q, temperature=2.0, own=-1.5)
    found = SoftTargetsLoss(hard_weight=0.5).losses(given).item()
    assert found == pytest.approx(4 * kl(P, Q) + 0.5 * 1.5)


def test_a_teacher_that_is_sure_to_the_last_bit_leaves_it_finite():
    for name in BY_HAND:
        given = tokens([1.0], [0.25], rest=(0.0, 0.75))
        # The others' mass of the teacher underflowed; the policy's did not.
        given.targets.rest_N[:] = -1e4
        assert math.isfinite(SoftTargetsLoss(divergence=name).losses(given).item())


@pytest.fixture(scope="module")
def two_models():
    tokenizer = train_tokenizer(["1 + 2 = 3"], vocab_size=259)
    made = [build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=seed) for seed in (0, 1)]
    for model in made:
        with torch.no_grad():
            # One from nothing says nothing: every token is as likely.
            model.get_output_embeddings().weight.mul_(20)
    return made


ROWS = [
    TokenRow((1, 40, 41, 42, 2), 2),
    TokenRow((1, 50, 51, 52, 53, 54, 2), 3, silent=((4, 6),)),
    TokenRow((1, 60, 61, 2), 1),
]


def taught(teacher, *, top_k, temperature=1.0, packed=False):
    bare = TokenTable(ROWS, pad=0)
    _, found = likeliest_tokens(
        teacher, bare.batch([0, 1, 2]), top_k=top_k, temperature=temperature, num_tokens=259
    )
    counts = [row.num_learned for row in ROWS]
    split = [each.split(counts) for each in (found.ids_NK, found.logprobs_NK, found.rest_N)]
    rows = [
        TaughtRow(row.ids, learned_places(row), SoftTargets(*each, temperature))
        for row, *each in zip(ROWS, *split, strict=True)
    ]
    facts = RowFacts([1.0, 2.0, 0.5], [True] * 3, [1.0] * 3, taught=TaughtRows(rows))
    return TokenTable(ROWS, pad=0, packed=packed, facts=facts)


def distributions(model, batch, temperature):
    """Whole distributions at the learned tokens, from the model's own logits."""
    logits = model(batch.input_ids_BT).logits[:, :-1][batch.wanted_BT[:, 1:]]
    return (logits / temperature).log_softmax(-1)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("divergence", ["forward_kl", "reverse_kl"])
def test_value_and_gradient_are_those_of_the_whole_vocabulary(two_models, temperature, divergence):
    teacher, student = two_models
    batch = taught(teacher, top_k=259, temperature=temperature).batch([0, 1, 2])
    loss, _ = loss_by(SoftTargetsLoss(divergence=divergence))(student, batch, batch.num_units)
    loss.backward()
    found = [p.grad.clone() for p in student.parameters()]
    student.zero_grad()
    with torch.no_grad():
        log_p = distributions(teacher, batch, temperature)
    log_q = distributions(student, batch, temperature)
    first, second = (log_p, log_q) if divergence == "forward_kl" else (log_q, log_p)
    weights = torch.tensor([1.0] * 3 + [2.0] * 2 + [0.5] * 3)
    each = temperature**2 * (first.exp() * (first - second)).sum(-1)
    expected = (weights * each).sum() / weights.sum()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for mine, parameter in zip(found, student.parameters(), strict=True):
        assert torch.allclose(mine, parameter.grad, rtol=1e-3, atol=1e-7)
    student.zero_grad()


def test_packing_micro_batches_and_slices_give_one_gradient(two_models, monkeypatch):
    teacher, student = two_models
    part = SoftTargetsLoss(divergence="jensen_shannon", hard_weight=0.3)

    def gradient(batches):
        total = sum(batch.num_units for batch in batches)
        for batch in batches:
            loss_by(part)(student, batch, total)[0].backward()
        found = torch.cat([p.grad.flatten() for p in student.parameters()])
        student.zero_grad()
        return found

    padded, packed = (taught(teacher, top_k=8, packed=each) for each in (False, True))
    whole = gradient([padded.batch([0, 1, 2])])
    assert whole.abs().max() > 1e-3
    for batches in ([packed.batch([2, 0, 1])], [padded.batch([0]), padded.batch([1, 2])]):
        assert torch.allclose(gradient(batches), whole, rtol=1e-4, atol=1e-7)
    # Three tokens at a time.
    monkeypatch.setattr(token_slices, "CHUNK_ELEMENTS", 3 * 259)
    assert torch.allclose(gradient([padded.batch([0, 1, 2])]), whole, rtol=1e-4, atol=1e-7)


def test_likeliest_tokens_and_the_rest_are_all_of_a_distribution(two_models):
    teacher, _ = two_models
    batch = TokenTable(ROWS, pad=0).batch([0, 1, 2])
    own, found = likeliest_tokens(teacher, batch, top_k=5, temperature=1.0, num_tokens=250)
    whole = distributions(teacher, batch, 1.0)
    assert torch.allclose(found.logprobs_NK, whole[:, :250].topk(5).values, atol=1e-5)
    total = found.logprobs_NK.exp().sum(-1) + found.rest_N.exp()
    assert torch.allclose(total, torch.ones_like(total), atol=1e-5)
    expected, _ = wanted_logprobs(teacher, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
    assert torch.allclose(own, expected, atol=1e-5)


def test_a_model_is_its_own_teacher_at_no_cost(two_models):
    teacher, _ = two_models
    batch = taught(teacher, top_k=4).batch([0, 1, 2])
    for name in BY_HAND:
        loss, _ = loss_by(SoftTargetsLoss(divergence=name))(teacher, batch, 1.0)
        assert loss.item() == pytest.approx(0.0, abs=1e-5)
    found = on_support(teacher, batch, batch.facts.targets)
    assert torch.allclose(found.rest_N, batch.facts.targets.rest_N, atol=1e-5)
