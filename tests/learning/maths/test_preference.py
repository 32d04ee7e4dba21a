"""Golden values of pairwise losses: margins 2 and 0, beta .1, lengths 5, 4 and 7, 3."""

import math

import pytest
import torch

from posttrain.learning.maths.preference import (
    PAIR_LOSSES,
    chosen_likelihood_loss,
    desensitized_logprobs,
    optimism_loss,
    preference_loss,
    sequence_logprobs,
)

CHOSEN = torch.tensor([-10.0, -12.0]) - torch.tensor([-11.0, -12.5])
REJECTED = torch.tensor([-14.0, -11.0]) - torch.tensor([-13.0, -11.5])


def loss_of(loss, chosen=CHOSEN, rejected=REJECTED, label_smoothing=0.0, denominator=2):
    return preference_loss(
        chosen,
        rejected,
        loss=loss,
        beta=0.1,
        denominator=denominator,
        label_smoothing=label_smoothing,
    )


def known(weights, sure):
    return torch.tensor(weights), torch.tensor(sure)


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_a_weight_counts_as_often_as_the_pair_would(loss):
    twice, _ = preference_loss(
        CHOSEN[[0, 0, 1]], REJECTED[[0, 0, 1]], loss=loss, beta=0.1, denominator=3
    )
    weighed, _ = preference_loss(
        CHOSEN, REJECTED, loss=loss, beta=0.1, denominator=3, known=known([2.0, 1.0], [1.0, 1.0])
    )
    torch.testing.assert_close(weighed, twice)


@pytest.mark.parametrize("loss", ["sigmoid", "robust", "ipo"])
def test_a_soft_label_is_the_pair_both_ways_round(loss):
    given = {"loss": loss, "beta": 0.1, "denominator": 1, "label_smoothing": 0.1}
    one, other = CHOSEN[:1], REJECTED[:1]
    (there, _), (back, _) = (
        preference_loss(*pair, **given) for pair in ((one, other), (other, one))
    )
    soft, _ = preference_loss(one, other, **given, known=known([1.0], [0.7]))
    torch.testing.assert_close(soft, 0.7 * there + 0.3 * back)
    # DPO with soft labels is conservative DPO with as much smoothing.
    if loss == "sigmoid":
        plain = given | {"label_smoothing": 0.0}
        soft, _ = preference_loss(one, other, **plain, known=known([1.0], [0.9]))
        torch.testing.assert_close(soft, there)


@pytest.mark.parametrize(
    ("variant", "loss", "label_smoothing", "expected"),
    [
        ("DPO", "sigmoid", 0.0, 0.645643),
        ("cDPO", "sigmoid", 0.1, 0.655643),
        ("IPO on sums", "ipo", 0.0, 17.0),
        ("hinge", "hinge", 0.0, 0.9),
    ],
)
def test_golden_values(variant, loss, label_smoothing, expected):
    got, _ = loss_of(loss, label_smoothing=label_smoothing)
    assert got.item() == pytest.approx(expected, abs=1e-5)


def test_golden_ipo_per_token():
    got, _ = loss_of("ipo", CHOSEN / torch.tensor([5, 4]), REJECTED / torch.tensor([7, 3]))
    assert got.item() == pytest.approx(23.553690, abs=1e-4)  # float32 of squares near 25
    got, _ = loss_of(
        "ipo",
        CHOSEN.double() / torch.tensor([5, 4]),
        REJECTED.double() / torch.tensor([7, 3]),
    )
    assert got.item() == pytest.approx(23.553690, abs=1e-5)


def test_robust_by_hand():
    # -log sig(.2) = .598139, -log sig(-.2) = .798139; (.9 x .598139 - .1 x .798139) / .8 = .573139.
    # At margin 0: (.9 - .1) log 2 / .8 = log 2.
    got, _ = loss_of("robust", label_smoothing=0.1)
    assert got.item() == pytest.approx((0.573139 + math.log(2)) / 2, abs=1e-5)
    with pytest.raises(ValueError, match="flip rate"):
        loss_of("robust", label_smoothing=0.5)


def test_robust_loss_is_unbiased_under_flipped_labels():
    # Mean over clean (chance .8) and flipped (.2) labels is the loss on clean labels.
    clean = loss_of("robust", label_smoothing=0.2)[0]
    flipped = loss_of("robust", REJECTED, CHOSEN, label_smoothing=0.2)[0]
    torch.testing.assert_close(0.8 * clean + 0.2 * flipped, loss_of("sigmoid")[0])


@pytest.mark.parametrize(
    ("loss", "at_reference"),
    [("sigmoid", math.log(2)), ("robust", math.log(2)), ("ipo", 25.0), ("hinge", 1.0)],
)
def test_policy_equal_to_its_reference(loss, at_reference):
    got, metrics = loss_of(loss, CHOSEN * 0, CHOSEN * 0)
    assert got.item() == pytest.approx(at_reference)
    assert metrics["accuracy"] == 0.5


def test_metrics_by_hand():
    _, metrics = loss_of("sigmoid")
    # Log-ratios 1, .5 and -1, .5: one win, one tie; rewards are a tenth of them.
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(
        {"accuracy": 0.75, "margin": 0.1, "chosen_reward": 0.075, "rejected_reward": -0.025}
    )


def test_metrics_of_one_pair():
    _, metrics = loss_of("sigmoid", CHOSEN[:1], REJECTED[:1], denominator=1)
    assert metrics["chosen_reward"].item() == pytest.approx(0.1)
    for term in (chosen_likelihood_loss, optimism_loss):
        _, metrics = term(torch.tensor([-3.0]), coefficient=1.0, denominator=1)
        assert abs(next(iter(metrics.values())).item()) == 3.0


@pytest.mark.parametrize("loss", list(PAIR_LOSSES))
def test_splits_add_up_and_gradients(loss):
    chosen, rejected = CHOSEN.double().requires_grad_(), REJECTED.double().requires_grad_()
    whole, _ = loss_of(loss, chosen, rejected, 0.1)
    halves = [loss_of(loss, chosen[i], rejected[i], 0.1)[0] for i in ([0], [1])]
    torch.testing.assert_close(sum(halves), whole)
    assert torch.autograd.gradcheck(lambda c, r: loss_of(loss, c, r, 0.1)[0], (chosen, rejected))


def test_the_better_pair_has_the_smaller_gradient():
    chosen = torch.tensor([5.0, -5.0], requires_grad=True)
    loss_of("sigmoid", chosen, torch.zeros(2))[0].backward()
    # -beta sigmoid(-beta m) / 2
    expected = [-0.05 / (1 + math.exp(0.5)), -0.05 / (1 + math.exp(-0.5))]
    assert chosen.grad.tolist() == pytest.approx(expected)


def test_rpo_and_xpo_terms():
    logprobs = torch.tensor([-10.0, -12.0], requires_grad=True)
    sft, metrics = chosen_likelihood_loss(logprobs, coefficient=0.5, denominator=2)
    assert sft.item() == pytest.approx(0.5 * 11.0)
    assert metrics["chosen_nll"].item() == 11.0
    optimism, metrics = optimism_loss(logprobs, coefficient=0.5, denominator=2)
    assert optimism.item() == pytest.approx(-0.5 * 11.0)
    assert metrics["sampled_logprob"].item() == -11.0
    # RPO makes the chosen likelier, XPO makes the reference's samples less likely.
    assert torch.autograd.grad(sft, logprobs)[0].tolist() == [-0.25, -0.25]
    assert torch.autograd.grad(optimism, logprobs)[0].tolist() == [0.25, 0.25]


def test_sequence_logprobs():
    logprobs = torch.tensor([[-1.0, -2.0, -6.0], [-4.0, 7.0, 7.0]])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    assert sequence_logprobs(logprobs, mask).tolist() == [-9.0, -4.0]
    assert sequence_logprobs(logprobs, mask, per_token=True).tolist() == [-3.0, -4.0]
    assert sequence_logprobs(logprobs, mask & False).tolist() == [0.0, 0.0]


def test_desensitized_logprobs_by_hand():
    # Completions of 3 and 1 tokens share 1; the prompt in front does not count as a place.
    logprobs = torch.tensor([[9.0, -1.0, -2.0, -6.0], [9.0, -4.0, 7.0, 7.0]])
    mask = torch.tensor([[False, True, True, True], [False, True, False, False]])
    shared = torch.tensor([1, 1])

    def at(alpha):
        return desensitized_logprobs(logprobs, mask, shared_length_B=shared, alpha=alpha).tolist()

    assert at(0.5) == [-1.0 - 0.5 * 8.0, -4.0]
    assert at(1.0) == sequence_logprobs(logprobs, mask).tolist()
    assert at(0.0) == [-1.0, -4.0]
