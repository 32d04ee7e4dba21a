import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.learning.maths.group_relative import (
    BASELINES,
    SCALES,
    group_relative,
    relative_to_own,
)
from posttrain.learning.maths.reduce import whiten
from posttrain.learning.maths.segments import joint_ids

GROUP_BASELINES = ["mean", "leave_one_out"]
GROUP_SCALES = list(SCALES)


@pytest.mark.parametrize(
    ("variant", "baseline", "scale", "epsilon", "a", "b"),
    [
        ("GRPO, verl", "mean", "sample", 1e-6, 0.866024, [-0.561950, 1.404875, 0, -0.842925]),
        ("GRPO, TRL", "mean", "sample", 1e-4, 0.865875, [-0.561794, 1.404484, 0, -0.842691]),
        ("GRPO, OpenRLHF", "mean", "sample", 1e-9, 0.866025, [-0.561952, 1.404879, 0, -0.842927]),
        ("open-instruct", "mean", "population", 1e-8, 1.0, [-0.648886, 1.622214, 0, -0.973329]),
        (
            "NeMo default",
            "leave_one_out",
            "leave_one_out",
            1e-6,
            1.1547,
            [-0.659827, 4.364329, 0, -1.109397],
        ),
        ("NeMo, LOO off", "mean", "sample", 1e-6, 0.866024, [-0.561950, 1.404875, 0, -0.842925]),
        ("Dr.GRPO", "mean", "none", 0.0, 0.5, [-0.2, 0.5, 0, -0.3]),
        ("RLOO", "leave_one_out", "none", 0.0, 0.666667, [-0.266667, 0.666667, 0, -0.4]),
        ("MaxRL, SkyRL", "mean", "mean", 1e-6, 0.999998, [-0.499999, 1.249997, 0, -0.749998]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_golden_values(grouped, variant, baseline, scale, epsilon, a, b):
    advantages = group_relative(*grouped, baseline=baseline, scale=scale, epsilon=epsilon)
    expected = torch.tensor([a, -a, -a, a, *b])
    torch.testing.assert_close(advantages, expected, atol=1e-5, rtol=0)


def test_golden_reinforce_plus_plus_baseline(grouped):
    centred = group_relative(*grouped, baseline="mean", scale="none", epsilon=0.0)
    mask = torch.ones(8, 3, dtype=torch.bool)  # three equal tokens a row
    whitened = whiten(centred.unsqueeze(-1).expand(8, 3), mask, spread="sample")
    one_row = [1.178511, -1.178511, -1.178511, 1.178511, -0.471405, 1.178511, 0, -0.707107]
    expected = torch.tensor(one_row).unsqueeze(-1).expand(8, 3)
    torch.testing.assert_close(whitened, expected, atol=1e-5, rtol=0)


def test_batch_scale_of_lite_ppo():
    # Group means 1/2 and 3. The batch 0 1 2 4 has mean 7/4 and squares
    # 49/16 + 9/16 + 1/16 + 81/16 = 140/16 = 8.75, so deviations
    # sqrt(8.75/3) = 1.707825 with n - 1 and sqrt(8.75/4) = 1.479020 with n.
    rewards, groups = torch.tensor([0.0, 1.0, 2.0, 4.0]), torch.tensor([5, 5, 9, 9])
    centred = torch.tensor([-0.5, 0.5, -1.0, 1.0])
    sample = group_relative(rewards, groups, baseline="mean", scale="batch_sample", epsilon=0)
    torch.testing.assert_close(sample, centred / 1.707825)
    population = group_relative(
        rewards, groups, baseline="mean", scale="batch_population", epsilon=0
    )
    torch.testing.assert_close(population, centred / 1.479020)


def test_no_baseline_and_no_scale_is_the_reward(grouped):
    rewards, groups = grouped
    assert torch.equal(
        group_relative(rewards, groups, baseline="none", scale="none", epsilon=1.0), rewards
    )


@pytest.mark.parametrize("baseline", GROUP_BASELINES)
@pytest.mark.parametrize("scale", GROUP_SCALES)
@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
def test_singleton_and_equal_groups_are_exactly_zero(baseline, scale, epsilon):
    # 0.1 added up and divided again is not 0.1 in floating point; a small epsilon would show that.
    rewards = torch.tensor([0.7, 0.1, 0.1, 0.1, 0.0, 0.0, -3.3, -3.3, 1.0, 0.0])
    groups = torch.tensor([0, 1, 1, 1, 2, 2, 3, 3, 4, 4])
    advantages = group_relative(rewards, groups, baseline=baseline, scale=scale, epsilon=epsilon)
    assert torch.equal(advantages[:8].abs(), torch.zeros(8))
    assert advantages[8] > 0 > advantages[9]


def test_leave_one_out_scale_of_a_group_of_two_is_not_applied():
    rewards, groups = torch.tensor([3.0, 1.0]), torch.tensor([0, 0])
    advantages = group_relative(
        rewards, groups, baseline="leave_one_out", scale="leave_one_out", epsilon=1e-6
    )
    assert advantages.tolist() == [2.0, -2.0]  # each less the other


def test_leave_one_out_scale_with_equal_others_is_not_applied():
    # For the success the others are 0.1 0.1 0.1: spread exactly 0, advantage 1 - 0.1.
    rewards, groups = torch.tensor([1.0, 0.1, 0.1, 0.1]), torch.zeros(4, dtype=torch.long)
    advantages = group_relative(
        rewards, groups, baseline="leave_one_out", scale="leave_one_out", epsilon=1e-6
    )
    assert advantages[0].item() == pytest.approx(0.9)
    # For each failure the others are 1 .1 .1: mean .4, squares .36 + .09 + .09 = .54,
    # deviation sqrt(.54 / 2) = .519615, advantage -.3 / .519615.
    assert advantages[1].item() == pytest.approx(-0.3 / 0.519615, rel=1e-5)


def test_rounding_does_not_pass_for_a_leave_one_out_spread():
    # Six failures at .7 have squares of about 1e-17 in floating point; their spread is 0.
    rewards, groups = torch.tensor([1.0] + 6 * [0.7]), torch.zeros(7, dtype=torch.long)
    advantages = group_relative(
        rewards, groups, baseline="leave_one_out", scale="leave_one_out", epsilon=0.0
    )
    assert advantages[0].item() == pytest.approx(0.3)
    # The odd one may also be the least.
    advantages = group_relative(
        -rewards, groups, baseline="leave_one_out", scale="leave_one_out", epsilon=0.0
    )
    assert advantages[0].item() == pytest.approx(-0.3)


def test_smallest_groups_that_have_a_scale():
    # Two rollouts: .5 / sqrt(.5). Three: 4 less 1, over the deviation sqrt(2) of 0 and 2.
    two = group_relative(
        torch.tensor([1.0, 0.0]), torch.zeros(2), baseline="mean", scale="sample", epsilon=0.0
    )
    assert two.tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)])
    of_the_batch = group_relative(
        torch.tensor([1.0, 0.0]), torch.zeros(2), baseline="mean", scale="batch_sample", epsilon=0
    )
    assert of_the_batch.tolist() == pytest.approx(two.tolist())
    three = group_relative(
        torch.tensor([4.0, 0.0, 2.0]),
        torch.zeros(3),
        baseline="leave_one_out",
        scale="leave_one_out",
        epsilon=0.0,
    )
    assert three[0].item() == pytest.approx(3 / 2**0.5)


def test_maxrl_of_rewards_whose_mean_is_not_positive():
    rewards, groups = torch.tensor([1.0, -1.0, -3.0, 1.0]), torch.tensor([0, 0, 1, 1])
    advantages = group_relative(rewards, groups, baseline="mean", scale="mean", epsilon=0.0)
    assert advantages.abs().tolist() == [0.0] * 4


def test_maxrl_without_success_is_zero_and_harder_groups_weigh_more():
    rewards = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    groups = torch.arange(3).repeat_interleave(4)
    advantages = group_relative(rewards, groups, baseline="mean", scale="mean", epsilon=0.0)
    # Success rates 1/4 and 3/4: (1 - p) / p = 3 and 1/3.
    assert advantages[:4].abs().max() == 0
    assert advantages[4].item() == pytest.approx(3.0)
    assert advantages[8].item() == pytest.approx(1 / 3)


def test_excluded_rollouts_enter_no_statistic(grouped):
    rewards, groups = grouped
    # An unscorable rollout has no reward at all: NaN must not leak into its group.
    padded = torch.cat([rewards, torch.tensor([float("nan")])])
    include = torch.tensor([True] * 8 + [False])
    advantages = group_relative(
        padded,
        torch.cat([groups, torch.tensor([1])]),
        baseline="mean",
        scale="sample",
        epsilon=1e-4,
        include_B=include,
    )
    expected = group_relative(rewards, groups, baseline="mean", scale="sample", epsilon=1e-4)
    assert torch.equal(advantages[:8], expected)
    assert advantages[8] == 0


def test_nothing_included_and_nothing_at_all():
    rewards, groups = torch.tensor([1.0, 0.0]), torch.tensor([0, 0])
    nobody = torch.zeros(2, dtype=torch.bool)
    advantages = group_relative(
        rewards, groups, baseline="mean", scale="batch_sample", epsilon=0.0, include_B=nobody
    )
    assert advantages.tolist() == [0.0, 0.0]
    empty = group_relative(rewards[:0], groups[:0], baseline="mean", scale="sample", epsilon=0.0)
    assert empty.shape == (0,)


def test_ragged_groups_equal_the_groups_one_by_one():
    generator = torch.Generator().manual_seed(0)
    sizes = [1, 2, 5, 3, 8]
    rewards = torch.rand(sum(sizes), generator=generator)
    groups = torch.repeat_interleave(torch.tensor([30, -2, 7, 0, 11]), torch.tensor(sizes))
    for baseline in BASELINES:
        for scale in ("none", "population", "sample", "leave_one_out", "mean"):
            together = group_relative(rewards, groups, baseline=baseline, scale=scale, epsilon=1e-6)
            apart = [
                group_relative(
                    rows, torch.zeros(len(rows)), baseline=baseline, scale=scale, epsilon=1e-6
                )
                for rows in rewards.split(sizes)
            ]
            torch.testing.assert_close(together, torch.cat(apart))


scores = st.floats(-10, 10, width=32).map(lambda score: round(score, 3))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(scores, st.integers(0, 3)), min_size=1, max_size=16),
    baseline=st.sampled_from(GROUP_BASELINES),
    scale=st.sampled_from(["none", "population", "sample", "leave_one_out", "batch_sample"]),
    shift=st.floats(-5, 5),
    order=st.randoms(use_true_random=False),
)
def test_permutation_shift_and_zero_mean(rows, baseline, scale, shift, order):
    rewards = torch.tensor([reward for reward, _ in rows], dtype=torch.float64)
    groups = torch.tensor([group for _, group in rows])

    def advantages_of(rewards, groups):
        return group_relative(rewards, groups, baseline=baseline, scale=scale, epsilon=1e-2)

    advantages = advantages_of(rewards, groups)
    assert torch.isfinite(advantages).all()
    permutation = torch.tensor(order.sample(range(len(rows)), len(rows)))
    permuted = advantages_of(rewards[permutation], groups[permutation])
    torch.testing.assert_close(permuted, advantages[permutation], atol=1e-8, rtol=1e-6)
    # The reward's level does not matter: every baseline here moves with it.
    torch.testing.assert_close(
        advantages_of(rewards + shift, groups), advantages, atol=1e-6, rtol=1e-6
    )
    if scale != "leave_one_out":
        for group in groups.unique():
            assert advantages[groups == group].sum().abs() < 1e-6


@pytest.mark.parametrize("scale", ["population", "sample", "leave_one_out", "mean", "batch_sample"])
def test_a_scale_makes_the_unit_of_reward_irrelevant(grouped, scale):
    rewards, groups = grouped
    one = group_relative(rewards, groups, baseline="mean", scale=scale, epsilon=0.0)
    ten = group_relative(10 * rewards, groups, baseline="mean", scale=scale, epsilon=0.0)
    torch.testing.assert_close(one, ten)


def test_turns_and_states_are_groups_of_their_own():
    problem, turn = torch.tensor([0, 0, 0, 0, 1, 1]), torch.tensor([0, 1, 0, 1, 0, 0])
    groups = joint_ids(problem, turn)
    assert groups.tolist() == [0, 1, 0, 1, 2, 2]
    rewards = torch.tensor([1.0, 5.0, 0.0, 9.0, 2.0, 2.0])
    advantages = group_relative(rewards, groups, baseline="mean", scale="none", epsilon=0.0)
    assert advantages.tolist() == [0.5, -2.0, -0.5, 2.0, 0.0, 0.0]


@pytest.mark.parametrize("scale", SCALES)
def test_without_an_own_rollout_the_rewards_of_others_stand(scale):
    found = relative_to_own(
        torch.tensor([2.0, -1.0, 5.0]),
        torch.tensor([0, 0, 1]),
        own_B=torch.tensor([False, False, False]),
        foreign_B=torch.tensor([True, True, False]),
        baseline="mean",
        scale=scale,
        epsilon=1e-6,
    )
    assert found.tolist() == [2.0, -1.0, 0.0]


@pytest.mark.parametrize(
    ("scale", "divisor"),
    [
        # Own 0, 0, 3 of mean 1: squares 1 + 1 + 4 = 6 about it, n - 1 = 2. No rollout of others is
        # among them, so none is left out.
        ("leave_one_out", 3**0.5),
        ("sample", 3**0.5),
        ("population", 2**0.5),
        ("mean", 1.0),
        # The batch is 0, 0, 3 and the 9 of the other group: mean 3, squares 9 + 9 + 0 + 36 = 54.
        ("batch_sample", 18**0.5),
        ("batch_population", 13.5**0.5),
    ],
)
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [2, 3, 0, 5, 1, 4], [3, 4, 5, 1, 0, 2]])
def test_a_rollout_of_others_against_the_own_of_its_group_in_any_order(scale, divisor, order):
    # Rows 0 to 2 are the own of group 7, row 3 is of others there; row 4 is the own of group 8, and
    # row 5 is of others in group 9, which has no own.
    rewards = torch.tensor([0.0, 0.0, 3.0, 5.0, 9.0, 4.0])
    found = relative_to_own(
        rewards[order],
        torch.tensor([7, 7, 7, 7, 8, 9])[order],
        own_B=torch.tensor([True, True, True, False, True, False])[order],
        foreign_B=torch.tensor([False, False, False, True, False, True])[order],
        baseline="mean",
        scale=scale,
        epsilon=0.0,
    )
    torch.testing.assert_close(found[order.index(3)], torch.tensor((5.0 - 1.0) / divisor))
    assert found[order.index(5)] == 4.0


@settings(max_examples=50)
@given(
    rows=st.lists(
        st.tuples(st.integers(-3, 3), st.integers(0, 2), st.booleans()), min_size=1, max_size=9
    ),
    scale=st.sampled_from(GROUP_SCALES),
    order=st.randoms(use_true_random=False),
)
def test_no_advantage_beside_rollouts_of_others_goes_by_the_order(rows, scale, order):
    places = [*range(len(rows))]
    order.shuffle(places)

    def found(rows):
        rewards, groups, own = map(torch.tensor, zip(*rows, strict=True))
        return relative_to_own(
            rewards.double(),
            groups,
            own_B=own,
            foreign_B=~own,
            baseline="leave_one_out",
            scale=scale,
            epsilon=1e-6,
        )

    torch.testing.assert_close(found([rows[place] for place in places]), found(rows)[places])
