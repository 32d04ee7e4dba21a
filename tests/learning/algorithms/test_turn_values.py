"""Values of turns: targets, losses, advantages and choices, by hand."""

import pytest
import torch

from posttrain.learning.algorithms.advantages.learned import LearnedAdvantage
from posttrain.learning.algorithms.batches import RolloutBatch
from posttrain.learning.algorithms.turn_values.base import EpisodeTurns, TurnReadings
from posttrain.learning.algorithms.turn_values.implicit import ImplicitValues
from posttrain.learning.algorithms.turn_values.options import OptionValues
from posttrain.learning.algorithms.turn_values.outcome import OutcomeValues
from posttrain.learning.algorithms.turn_values.returns import ReturnValues
from posttrain.learning.algorithms.turn_values.success import SuccessValues
from posttrain.learning.algorithms.turn_values.td import TdValues
from posttrain.learning.maths.turn_values import expectile_loss, option_targets, td_targets

# An episode of three turns that earns 1 at its end, and one of a single turn that earns nothing.
TAKEN = torch.tensor([[True, True, True], [True, False, False]])
REWARDS = torch.tensor([[0.0, 0.5, 0.5], [0.0, 9.0, 9.0]]) * TAKEN
SAID = torch.tensor([[[0.5, 0.7], [0.6, 0.4], [0.9, 1.1]], [[0.1, 0.3], [7.0, 7.0], [7.0, 7.0]]])
BEGUN = torch.tensor([[[0.2, 0.4], [0.5, 0.3], [0.8, 0.6]], [[0.2, 0.0], [7.0, 7.0], [7.0, 7.0]]])
POSED = torch.tensor([0.0, 1.0])
READ = TurnReadings(SAID, BEGUN, POSED)
BEHIND = TurnReadings(SAID + 0.1, BEGUN + 0.1, POSED)


def turns(*fresh):
    return EpisodeTurns(REWARDS, TAKEN, torch.tensor(fresh or (False, False)))


def rows(found_BK):
    """What counts, episode by episode."""
    return [row[taken].tolist() for row, taken in zip(found_BK, TAKEN, strict=True)]


def near(*expected):
    return [pytest.approx(row, abs=1e-6) for row in expected]


def test_a_turn_is_worth_its_reward_and_the_next_situation():
    """After the last one nothing follows, and what stands at no turn is never read."""
    found = td_targets(REWARDS, BEGUN, taken_BK=TAKEN, gamma=0.5)
    assert rows(found[..., 0]) == near([0.25, 0.5 + 0.4, 0.5], [0.0])
    assert rows(found[..., 1]) == near([0.15, 0.5 + 0.3, 0.5], [0.0])


def test_an_option_costs_one_discount_however_many_turns_it_has():
    found = option_targets(REWARDS, BEGUN, taken_BK=TAKEN, turns=2, gamma=0.5)
    # Two turns' rewards, and the situation two turns on; the last two options end the episode.
    assert rows(found[..., 0]) == near([0.0 + 0.5 + 0.5 * 0.8, 0.5 + 0.5, 0.5], [0.0])
    whole = option_targets(REWARDS, BEGUN, taken_BK=TAKEN, turns=7, gamma=0.5)
    assert rows(whole[..., 1]) == near([1.0, 1.0, 0.5], [0.0])
    single = option_targets(REWARDS, BEGUN, taken_BK=TAKEN, turns=1, gamma=0.5)
    assert torch.equal(single, td_targets(REWARDS, BEGUN, taken_BK=TAKEN, gamma=0.5))


def test_the_least_expectile_loss_is_at_the_expectile():
    """Of 0 and 1 the 0.8-expectile is 0.8: there 0.2 of 0.8 below weighs as 0.8 of 0.2 above."""
    value = torch.tensor(0.8, requires_grad=True)
    losses = expectile_loss(torch.tensor([0.0, 1.0]) - value, expectile=0.8)
    assert losses.tolist() == pytest.approx([0.2 * 0.64, 0.8 * 0.04])
    losses.sum().backward()
    assert value.grad.item() == pytest.approx(0.0, abs=1e-6)
    # Both heads of one sign, whichever side they lie on by themselves.
    sided = expectile_loss(torch.tensor([0.5, -0.5]), side=torch.tensor([1.0, 1.0]), expectile=0.8)
    assert sided.tolist() == pytest.approx([0.2, 0.2])


def test_archer_learns_q_of_stored_turns_and_v_of_fresh_ones():
    values = TdValues(gamma=0.5)
    found = rows(values.loss(READ, BEHIND, turns(False, True)))
    # Of the second turn: r + γ V' is 0.5 + 0.5 * 0.9 and 0.5 + 0.5 * 0.7.
    assert found[0][1] == pytest.approx((0.6 - 0.95) ** 2 + (0.4 - 0.85) ** 2)
    # Of the fresh one: V against the copy's Q, head by head.
    assert found[1] == pytest.approx([(0.2 - 0.2) ** 2 + (0.0 - 0.4) ** 2])
    advantages = rows(values.advantages(READ, BEHIND, turns()))
    assert advantages == near([0.5 - 0.2, 0.4 - 0.3, 0.9 - 0.6], [0.1 - 0.0])


def test_no_gradient_flows_through_a_target():
    said, begun = SAID.clone().requires_grad_(), BEGUN.clone().requires_grad_()
    read = TurnReadings(said, begun, POSED)
    loss = ImplicitValues(gamma=0.5, expectile=0.9).loss(read, BEHIND, turns())[0, 0]
    loss.backward()
    # Q of the first turn is drawn to 0.5 * 0.5; V of the second turn, which that is of, stays.
    assert said.grad[0, 0].tolist() == pytest.approx([0.25, 0.45])
    assert begun.grad[0, 1].tolist() == [0.0, 0.0]
    # min Q' = 0.6 lies 0.4 above V = 0.2.
    assert begun.grad[0, 0].tolist() == pytest.approx([-0.9 * 0.4, 0.0])


def test_implicit_values_compare_the_lower_q_with_v():
    found = ImplicitValues().advantages(READ, BEHIND, turns())
    assert rows(found) == near([0.6 - 0.2, 0.5 - 0.5, 1.0 - 0.8], [0.2 - 0.2])


def test_returns_need_no_other_critic():
    values = ReturnValues(gamma=0.5)
    # What follows is 0 + (0.5 + 0.25) / 2, 0.5 + 0.25, 0.5; and 0.
    assert rows(values.loss(READ, READ, turns()))[0][0] == pytest.approx(
        ((0.5 - 0.375) ** 2 + (0.7 - 0.375) ** 2 + (0.2 - 0.375) ** 2) / 2
    )
    assert rows(values.advantages(READ, READ, turns())) == near([0.4, 0.0, 0.2], [0.0])
    assert values.follows is None


def test_an_option_is_compared_with_its_situation():
    found = rows(OptionValues(turns=2, gamma=0.5).advantages(READ, BEHIND, turns()))
    # 0.5 + 0.5 * 0.7, the lower of both copies, less the mean of 0.2 and 0.4.
    assert found == near([0.85 - 0.3, 1.0 - 0.4, 0.5 - 0.7], [0.0 - 0.1])


def test_a_situation_is_classified_before_a_turn_and_after_one():
    loss = rows(SuccessValues().loss(READ, READ, turns()))
    nats = lambda x: torch.nn.functional.softplus(torch.tensor(x)).item()  # noqa: E731
    # A success: softplus(-x). The first situation once, and the problem alone; later ones twice.
    assert loss[0][0] == pytest.approx(nats(-0.2) + nats(-0.4) + nats(-0.0))
    assert loss[0][2] == pytest.approx(2 * (nats(-0.8) + nats(-0.6)))
    assert loss[1] == pytest.approx([nats(0.2) + nats(0.0) + nats(1.0)])


def test_a_turn_is_kept_that_made_the_success_likelier():
    values = SuccessValues(gamma=0.5, margin=0.05)
    chance = torch.sigmoid(torch.tensor([0.2, 0.3, 0.6])).tolist()
    found = rows(values.advantages(READ, READ, turns()))
    first = chance[1] - chance[0] - 0.05 + 0.0 + 0.375
    # The last two are above 1 or near it: 0.5 was paid, and 0.75 or 0.5 followed.
    second = min(1.0, chance[2] - chance[1] - 0.05 + 0.5 + 0.75)
    third = 0.0 - chance[2] - 0.05 + 0.5 + 0.5
    assert found == near([first, second, third], [0.0 - 0.5 - 0.05])
    standing = values.standing(READ, turns()).tolist()
    assert standing == pytest.approx([1.0 - 0.5, 0.0 - torch.sigmoid(torch.tensor(1.0)).item()])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [2.0, 2.0, -1.0]),
        ({"weigh": "positive"}, [1.0, 1.0, 0.0]),
        ({"weigh": "exponential", "beta": 2.0, "most": 2.5}, [2.5, 2.5, 0.6065307]),
    ],
)
def test_an_advantage_is_signed_a_weight_or_a_filter(settings, expected):
    advantage = LearnedAdvantage.parse({"values": "returns"} | settings, where="advantage")
    batch = RolloutBatch(
        rewards_B=torch.zeros(1),
        group_B=torch.zeros(1),
        mask_BT=torch.tensor([[True, True, True, False]]),
        turn_advantages_BT=torch.tensor([[2.0, 2.0, -1.0, 0.0]]),
    )
    found, returns = advantage.estimate(batch, rewards_B=batch.rewards_B, costs=(), include_B=None)
    assert found.tolist() == [pytest.approx([*expected, 0.0])]
    assert returns is None


def test_an_outcome_is_foreseen_and_a_turn_credited_halfway_to_it():
    """WebRL, equations 8 and 9: by the next situation's chance, at last by the outcome."""
    values = OutcomeValues(lam=0.25)
    loss = rows(values.loss(READ, READ, turns()))
    nats = lambda x: torch.nn.functional.softplus(torch.tensor(x)).item()  # noqa: E731
    assert loss[0][1] == pytest.approx(nats(-0.5) + nats(-0.3))
    assert loss[1] == pytest.approx([nats(0.2) + nats(0.0)])
    first, second, third = torch.sigmoid(torch.tensor([0.2, 0.3, 0.6])).tolist()
    found = rows(values.advantages(READ, READ, turns()))
    expected = [0.25 * (second - first) + 0.75 * (1 - first)]
    expected += [0.25 * (third - second) + 0.75 * (1 - second), 1 - third]
    # The other episode fails: half of nothing, less the chance of 0.5 that it had.
    assert found == near(expected, [-0.5])
    with pytest.raises(ValueError, match="likely_from 0.9 is not below likely_to 0.5"):
        OutcomeValues(likely_from=0.9, likely_to=0.5)
