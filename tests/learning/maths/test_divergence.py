import math

import pytest
import torch

from posttrain.learning.maths.divergence import DIVERGENCES, divergence
from posttrain.learning.maths.kl import kl_estimate

POLICY = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64).log()
REFERENCE = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # 1/2 log 2 + 0 + 1/4 log(1/2)
        ("reverse_kl", math.log(2) / 4),
        ("forward_kl", math.log(2) / 4),
        # The middle is 3/8 1/4 3/8: each side has a half of log(4/3) and a quarter of log(2/3).
        ("jensen_shannon", 0.5 * math.log(4 / 3) + 0.25 * math.log(2 / 3)),
        # Squared differences of a sixteenth, over a half and over a quarter.
        ("chi_squared", 0.125 + 0.25),
    ],
)
def test_by_hand(kind, expected):
    assert divergence(POLICY, REFERENCE, kind=kind).item() == pytest.approx(expected)


@pytest.mark.parametrize("kind", list(DIVERGENCES))
def test_equal_is_zero_shifts_do_not_count_and_gradients(kind):
    assert divergence(POLICY, POLICY, kind=kind) == 0.0
    torch.testing.assert_close(
        divergence(POLICY + 7, REFERENCE - 3, kind=kind), divergence(POLICY, REFERENCE, kind=kind)
    )
    policy = POLICY.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda p: divergence(p, REFERENCE, kind=kind), policy)


@pytest.mark.parametrize(
    ("kind", "estimator"),
    [("reverse_kl", "k3"), ("forward_kl", "forward"), ("jensen_shannon", "jensen_shannon"),
     ("chi_squared", "chi_squared")],
)  # fmt: skip
def test_the_estimators_of_sampled_tokens_have_it_as_their_mean(kind, estimator):
    mean = (POLICY.exp() * kl_estimate(POLICY, REFERENCE, estimator=estimator)).sum()
    torch.testing.assert_close(mean, divergence(POLICY, REFERENCE, kind=kind))


def test_tokens_that_the_policy_forbids():
    policy = torch.tensor([0.0, 0.0, -math.inf])
    uniform = torch.zeros(3)
    # KL(policy || reference) = log(1/2 : 1/3); the other direction is infinite.
    assert divergence(policy, uniform, kind="reverse_kl").item() == pytest.approx(math.log(1.5))
    assert divergence(policy, uniform, kind="forward_kl").item() == math.inf
    assert divergence(policy, uniform, kind="chi_squared").item() == math.inf
    for kind in DIVERGENCES:
        assert divergence(policy, policy, kind=kind).item() == 0.0
    # chi^2(policy || uniform): (1/6)^2 / (1/3) twice and (1/3)^2 / (1/3) once.
    assert divergence(uniform, policy, kind="chi_squared").item() == pytest.approx(0.5)
