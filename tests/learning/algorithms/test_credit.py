"""From rewards to advantages: what enters, in which order, and who bears loss."""

import pytest
import torch

from posttrain.learning.algorithms.batches import RolloutBatch
from posttrain.learning.algorithms.credit_assignment import advantages

MASK = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])


def outcomes(**more):
    given = {
        "rewards_B": torch.tensor([1.0, 0.0, 0.5]),
        "group_B": torch.tensor([4, 4, 4]),
        "mask_BT": MASK,
    }
    return RolloutBatch(**(given | more))


def test_truncated_rollouts_are_kept_masked_or_dropped(choose):
    cut = outcomes(truncated_B=torch.tensor([False, True, False]))

    def found(truncated):
        credit = advantages(choose("default", advantage={"truncated": truncated}), cut)
        return credit.advantages_BT[:, 0].tolist(), credit.bears_loss_B.tolist()

    assert found("keep") == ([0.5, -0.5, 0.0], [True, True, True])
    # Masked it still is one of the three of whom the mean is .5; dropped the mean is .75.
    assert found("mask") == ([0.5, 0.0, 0.0], [True, False, True])
    assert found("drop") == ([0.25, 0.0, -0.25], [True, False, True])


def test_rollouts_that_nothing_could_judge_are_in_no_statistic(choose):
    unjudged = outcomes(
        rewards_B=torch.tensor([1.0, float("nan"), 0.5]),
        scored_B=torch.tensor([True, False, True]),
    )
    credit = advantages(choose("default"), unjudged)
    assert credit.advantages_BT[:, 0].tolist() == [0.25, 0.0, -0.25]
    assert credit.bears_loss_B.tolist() == [True, False, True]


def test_statistics_among_the_successes_only(choose):
    algorithm = choose("default", advantage={"among": "positive"})
    found = advantages(algorithm, outcomes()).advantages_BT[:, 0]
    assert found.tolist() == [0.25, 0.0, -0.25]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"positive_weight": 0.1, "negative_weight": 3.0}, [0.05, -1.5, 0.0]),
        ({"positive_weight": 0.1}, [0.05, -0.5, 0.0]),
        ({"negative_weight": 0.0}, [0.5, 0.0, 0.0]),
    ],
)
def test_weights_by_sign_come_last(choose, weights, expected):
    found = advantages(choose("default", advantage=weights), outcomes()).advantages_BT[:, 0]
    assert found.tolist() == pytest.approx(expected)


def test_all_reasons_to_leave_a_rollout_out_count_together(choose):
    many = RolloutBatch(
        rewards_B=torch.tensor([1.0, 0.5, 0.0, 9.0, 7.0]),
        group_B=torch.zeros(5),
        truncated_B=torch.tensor([False, False, False, True, False]),
        scored_B=torch.tensor([True, True, True, True, False]),
    )
    dropped = choose("default", advantage={"truncated": "drop"})
    credit = advantages(dropped, many)
    assert credit.advantages_BT[:, 0].tolist() == [0.5, 0.0, -0.5, 0.0, 0.0]
    assert credit.bears_loss_B.tolist() == [True, True, True, False, False]
    successes = choose("default", advantage={"truncated": "drop", "among": "positive"})
    found = advantages(successes, many).advantages_BT[:, 0]
    assert found.tolist() == [0.25, -0.25, 0.0, 0.0, 0.0]


def test_a_divergence_is_taken_off_the_reward_before_the_baseline(choose):
    # Summed over the drawn tokens it is .3, .1 and .2 (masked tokens hold 9); half of it is paid:
    # rewards .85, -.05 and .4; each less the mean of the other two.
    sampled = torch.tensor([[-1.0, -1.0, -1.0], [-1.0, -1.0, 9.0], [-1.0, 9.0, 9.0]])
    reference = sampled - torch.tensor([[0.1, 0.1, 0.1], [0.3, -0.2, 0.0], [0.2, 0.0, 0.0]])
    algorithm = choose("rloo", regularizers={"kl": {"coefficient": 0.5}})
    known = outcomes(sampled_logprobs_BT=sampled, reference_logprobs_BT=reference)
    found = advantages(algorithm, known).advantages_BT[:, 0]
    assert found.tolist() == pytest.approx([0.85 - 0.175, -0.05 - 0.625, 0.4 - 0.4], abs=1e-6)


def test_returns_pay_for_the_divergence_that_follows(choose):
    sampled = torch.zeros(3, 3)
    reference = -torch.tensor([[0.1, 0.2, 0.4], [0.5, 0.5, 9.0], [1.0, 9.0, 9.0]])
    known = outcomes(sampled_logprobs_BT=sampled, reference_logprobs_BT=reference)
    algorithm = choose(
        "reinforce_plus_plus",
        advantage={"whiten": "none"},
        regularizers={"kl": {"coefficient": 1.0}},
    )
    found = advantages(algorithm, known).advantages_BT
    expected = torch.tensor([[0.3, 0.4, 0.6], [-1.0, -0.5, 0.0], [-0.5, 0.0, 0.0]])
    torch.testing.assert_close(found, expected)


def test_whitening_counts_tokens_and_leaves_out_who_is_dropped(choose):
    algorithm = choose(
        "reinforce_plus_plus_baseline", regularizers={"kl": None}, advantage={"truncated": "drop"}
    )
    cut = outcomes(truncated_B=torch.tensor([False, False, True]))
    found = advantages(algorithm, cut).advantages_BT
    # +.5 three times and -.5 twice: mean .1, squares 5 x .25 - 5 x .01 = 1.2, by n = 5: .24.
    spread = 0.24**0.5
    assert found[0].tolist() == pytest.approx([0.4 / spread] * 3)
    assert found[1].tolist() == pytest.approx([-0.6 / spread] * 2 + [0.0])
    assert found[2].tolist() == [0.0] * 3


# Two rollouts of one problem, of two turns and of one; token 1 of the first is an observation.
TURNS = {
    "rewards_B": torch.tensor([1.0, 0.0]),
    "group_B": torch.tensor([0, 0]),
    "mask_BT": torch.tensor([[True, False, True], [True, True, False]]),
    "turn_BT": torch.tensor([[0, -1, 1], [0, 0, -1]]),
    "turn_rewards_BK": torch.tensor([[0.2, 0.8], [0.4, 7.0]]),
}


def test_turns_are_compared_with_the_same_turn_of_the_group(choose):
    found = advantages(
        choose("default", advantage={"kind": "turns", "gamma": 0.0}), RolloutBatch(**TURNS)
    )
    # First turns .2 and .4 about .3; the second turn is alone; the 7.0 was never taken.
    torch.testing.assert_close(
        found.advantages_BT, torch.tensor([[-0.1, 0.0, 0.0], [0.1, 0.1, 0.0]])
    )


def test_turns_of_a_dropped_rollout_are_compared_with_nothing(choose):
    three = {
        "rewards_B": torch.tensor([1.0, 0.0, 5.0]),
        "group_B": torch.tensor([0, 0, 0]),
        "mask_BT": torch.ones(3, 2, dtype=torch.bool),
        "turn_BT": torch.tensor([[0, 1], [0, 1], [0, 1]]),
        "turn_rewards_BK": torch.tensor([[0.2, 0.8], [0.4, 0.0], [9.0, 9.0]]),
        "truncated_B": torch.tensor([False, False, True]),
    }
    advantage = {"kind": "turns", "gamma": 0.0, "truncated": "drop"}
    found = advantages(choose("default", advantage=advantage), RolloutBatch(**three)).advantages_BT
    torch.testing.assert_close(found, torch.tensor([[-0.1, 0.4], [0.1, -0.4], [0.0, 0.0]]))


def test_turns_are_paid_for_what_follows_and_for_the_episode(choose):
    turns = {"kind": "turns", "gamma": 0.5, "episode_weight": 2.0}
    found = advantages(choose("default", advantage=turns), RolloutBatch(**TURNS))
    # First turns .2 + .5 x .8 = .6 and .4 about .5; the episodes' own are +.5 and -.5, twice.
    torch.testing.assert_close(
        found.advantages_BT, torch.tensor([[1.1, 0.0, 1.0], [-1.1, -1.1, 0.0]])
    )


def test_turns_are_compared_with_turns_from_the_same_state(choose):
    states = torch.tensor([[5, 6], [6, 0]])
    algorithm = choose("default", advantage={"kind": "turns", "like": "state", "gamma": 0.0})
    found = advantages(algorithm, RolloutBatch(**TURNS, state_BK=states))
    # State 6 is met in the first rollout's second turn (.8) and the second one's first (.4).
    torch.testing.assert_close(
        found.advantages_BT, torch.tensor([[0.0, 0.0, 0.2], [-0.2, -0.2, 0.0]])
    )


def test_turns_are_compared_with_any_turn_and_their_advantages_add_up(choose):
    algorithm = choose(
        "default",
        advantage={"kind": "turns", "like": "any", "gamma": 0.5, "discounted": "advantages"},
    )
    found = advantages(algorithm, RolloutBatch(**TURNS)).advantages_BT
    # The mean of .2, .8 and .4 is 7/15: -4/15, 5/15 and -1/15; the first one gets half the second.
    expected = torch.tensor([[-1.5 / 15, 0.0, 5 / 15], [-1 / 15, -1 / 15, 0.0]])
    torch.testing.assert_close(found, expected)


def test_all_turns_weigh_the_same(choose):
    from posttrain.learning.algorithms.token_weights.turn import TurnWeight

    turn_BT = torch.tensor([[0, 0, 0, -1, 1], [0, 1, 1, 2, -1]])
    rollouts = RolloutBatch(torch.zeros(2), torch.zeros(2), turn_BT=turn_BT)
    found = TurnWeight().of_generation(rollouts, torch.zeros(2, 5))
    # Four tokens: two for each of two turns. Four thirds for each of three turns.
    expected = [[2 / 3] * 3 + [0.0, 2.0], [4 / 3, 2 / 3, 2 / 3, 4 / 3, 0.0]]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_a_turn_as_one_action_of_a_critic(choose):
    values = torch.tensor([[0.1, 9.0, 0.6], [0.3, 9.0, 0.0]])
    turns = {"kind": "gae", "unit": "turn", "gamma": 0.5, "lam": 0.5, "whiten": "none"}
    algorithm = choose("ppo", advantage=turns, regularizers={"kl": None})
    found = advantages(algorithm, RolloutBatch(**TURNS, values_BT=values))
    # Second turn: .8 - .6 = .2. First: .2 + .5 x .6 - .1 = .4, and .25 x .2 of the second: .45.
    # The other rollout's only turn: .4 - .3 = .1 at both of its tokens, whatever the critic says
    # of the second one.
    expected = torch.tensor([[0.45, 0.0, 0.2], [0.1, 0.1, 0.0]])
    torch.testing.assert_close(found.advantages_BT, expected)
    # A target is what the turn is worth from its beginning on: .45 + .1, .2 + .6, .1 + .3.
    expected = torch.tensor([[0.55, 0.0, 0.8], [0.4, 0.4, 0.0]])
    torch.testing.assert_close(found.returns_BT, expected)


def test_turns_pay_for_the_divergence_of_their_own_tokens(choose):
    sampled = torch.zeros(2, 3)
    reference = -torch.tensor([[0.1, 9.0, 0.3], [0.2, 0.2, 9.0]])
    algorithm = choose(
        "rloo", advantage={"kind": "turns", "gamma": 0.0}, regularizers={"kl": {"coefficient": 1.0}}
    )
    logprobs = {"sampled_logprobs_BT": sampled, "reference_logprobs_BT": reference}
    found = advantages(algorithm, RolloutBatch(**TURNS, **logprobs)).advantages_BT
    # First turns .2 - .1 = .1 and .4 - .4 = 0, about .05.
    torch.testing.assert_close(found, torch.tensor([[0.05, 0.0, 0.0], [-0.05, -0.05, 0.0]]))


def test_a_rollout_without_a_token_has_nothing(choose):
    empty = outcomes(mask_BT=torch.tensor([[True, True], [False, False], [True, False]]))
    algorithm = choose(
        "reinforce_plus_plus", regularizers={"kl": None}, advantage={"whiten": "none"}
    )
    found = advantages(algorithm, empty).advantages_BT
    assert found.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.5, 0.0]]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("ppo", {"regularizers": {"kl": None}}, "advantage gae needs values_BT"),
        ("rloo", {}, "kl in the reward needs sampled_logprobs_BT"),
        ("default", {"advantage": {"truncated": "drop"}}, "truncated needs truncated_B"),
        ("default", {"advantage": {"kind": "turns"}}, "credit by turns needs turn_BT"),
        ("default", {"overlong": {}}, "overlong without a limit needs max_tokens"),
    ],
)
def test_what_is_missing_is_named(choose, name, changes, message):
    with pytest.raises(ValueError, match=message):
        advantages(choose(name, **changes), outcomes())
