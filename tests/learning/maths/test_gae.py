import pytest
import torch

from posttrain.learning.maths.gae import discounted_returns, generalized_advantages
from posttrain.learning.maths.reduce import whiten

MASK = torch.tensor([[True, True, True], [True, True, False]])
REWARDS = torch.tensor([[0.0, 0.0, 1.0], [0.0, -0.5, 0.0]])
VALUES = torch.tensor([[0.5, 0.4, 0.3], [0.2, 0.1, 0.0]])
RAW = [0.418307, 0.555350, 0.700000, -0.665300, -0.600000]


def golden():
    return generalized_advantages(REWARDS, VALUES, mask_BT=MASK, gamma=0.99, lam=0.95)


def test_golden_advantages_and_returns():
    advantages, returns = golden()
    assert advantages[MASK].tolist() == pytest.approx(RAW, abs=1e-5)
    assert returns[MASK].tolist() == pytest.approx(
        [0.918307, 0.955350, 1.0, -0.4653, -0.5], abs=1e-5
    )
    assert advantages[1, 2] == returns[1, 2] == 0.0


@pytest.mark.parametrize(
    ("spread", "expected"),
    [
        ("sample", [0.510014, 0.717640, 0.936790, -1.131688, -1.032756]),  # verl, TRL, NeMo GAE
        ("population", [0.570213, 0.802346, 1.047363, -1.265266, -1.154657]),  # OpenRLHF
    ],
)
def test_golden_whitening(spread, expected):
    whitened = whiten(golden()[0], MASK, spread=spread)
    assert whitened[MASK].tolist() == pytest.approx(expected, abs=1e-5)
    assert whitened[1, 2] == 0.0


GAP_MASK = torch.tensor([[True, True, False, False, True, True]])


def test_golden_observation_gap_is_carried_over():
    # The critic says 9 at the observation, far from the truth, so that a leak would show.
    advantages, _ = generalized_advantages(
        torch.tensor([[0.0, 0, 0, 0, 0, 1]]),
        torch.tensor([[0.5, 0.4, 9.0, 9.0, 0.3, 0.2]]),
        mask_BT=GAP_MASK,
        gamma=0.99,
        lam=0.95,
    )
    assert advantages[GAP_MASK].tolist() == pytest.approx(
        [0.374434, 0.508701, 0.650400, 0.800000], abs=1e-5
    )


def test_a_gap_changes_nothing_at_the_valid_tokens():
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.rand(2, 3, 4, generator=generator)
    solid = torch.ones(3, 4, dtype=torch.bool)
    expected = generalized_advantages(rewards, values, mask_BT=solid, gamma=0.9, lam=0.8)
    places = torch.tensor([1, 3, 4, 6])
    holed = torch.zeros(3, 8, dtype=torch.bool)
    holed[:, places] = True
    wide_rewards, wide_values = torch.full((3, 8), 7.0), torch.full((3, 8), -7.0)
    wide_rewards[:, places], wide_values[:, places] = rewards, values
    got = generalized_advantages(wide_rewards, wide_values, mask_BT=holed, gamma=0.9, lam=0.8)
    for wide, narrow in zip(got, expected, strict=True):
        assert torch.equal(wide[:, places], narrow)
    returns = discounted_returns(wide_rewards, holed, gamma=0.9)
    assert torch.equal(returns[:, places], discounted_returns(rewards, solid, gamma=0.9))


def test_lambda_one_is_return_less_value_and_lambda_zero_is_one_step():
    full, _ = generalized_advantages(REWARDS, VALUES, mask_BT=MASK, gamma=0.9, lam=1.0)
    expected = discounted_returns(REWARDS, MASK, gamma=0.9) - VALUES
    torch.testing.assert_close(full[MASK], expected[MASK])
    one_step, _ = generalized_advantages(REWARDS, VALUES, mask_BT=MASK, gamma=0.9, lam=0.0)
    # 0 + .9 x .4 - .5, 0 + .9 x .3 - .4, 1 - .3 and .9 x .1 - .2, -.5 - .1
    assert one_step[MASK].tolist() == pytest.approx([-0.14, -0.13, 0.7, -0.11, -0.6])


def test_lambda_by_row():
    lam = torch.tensor([1.0, 0.0])
    mixed, _ = generalized_advantages(REWARDS, VALUES, mask_BT=MASK, gamma=0.9, lam=lam)
    for row, number in enumerate((1.0, 0.0)):
        whole, _ = generalized_advantages(REWARDS, VALUES, mask_BT=MASK, gamma=0.9, lam=number)
        assert torch.equal(mixed[row], whole[row])


def test_returns_by_hand():
    # From the right: 1; 0 + .5 x 1; 0 + .5 x .5; and -.5; 0 - .25.
    assert discounted_returns(REWARDS, MASK, gamma=0.5).tolist() == [
        [0.25, 0.5, 1.0],
        [-0.25, -0.5, 0.0],
    ]


def test_gradient_does_not_reach_the_critic():
    values = VALUES.clone().requires_grad_()
    advantages, returns = generalized_advantages(REWARDS, values, mask_BT=MASK, gamma=1, lam=1)
    assert not advantages.requires_grad
    assert not returns.requires_grad


@pytest.mark.parametrize("spread", ["sample", "population"])
def test_whitening_degenerate_cases_are_exactly_zero(spread):
    equal = torch.full((2, 3), 0.1)
    assert whiten(equal, MASK, spread=spread).abs().max() == 0
    single = torch.zeros(2, 3, dtype=torch.bool)
    single[0, 1] = True
    assert whiten(torch.randn(2, 3), single, spread=spread).abs().max() == 0
    assert whiten(torch.randn(2, 3), MASK & False, spread=spread).abs().max() == 0


def test_whitening_two_tokens():
    # 1 and 3: deviation sqrt(2) with n - 1, 1 with n.
    values, mask = torch.tensor([[1.0, 9.0, 3.0]]), torch.tensor([[True, False, True]])
    assert whiten(values, mask, spread="sample").tolist()[0] == pytest.approx(
        [-(0.5**0.5), 0.0, 0.5**0.5]
    )
    assert whiten(values, mask, spread="population").tolist()[0] == pytest.approx([-1.0, 0.0, 1.0])


def test_whitening_ignores_level_unit_and_order():
    values = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    whitened = whiten(values, MASK, spread="sample")
    torch.testing.assert_close(whiten(3 * values + 5, MASK, spread="sample"), whitened)
    torch.testing.assert_close(
        whiten(values.flip(0), MASK.flip(0), spread="sample"), whitened.flip(0)
    )
