import math

import pytest
import torch

from posttrain.learning.maths.intervals import (
    bounded_mean_interval,
    clustered_mean_interval,
    wilson_interval,
)


def test_wilson_by_hand():
    # 3 of 10, z^2 = 3.841459: center (3 + 1.920729) / 13.841459 = .355507;
    # reach 1.959964 sqrt(3 x 7 / 10 + .960365) / 13.841459 = .247708.
    interval = wilson_interval(torch.tensor([3]), torch.tensor([10]))
    assert interval.estimate.item() == pytest.approx(0.3)
    assert interval.low.item() == pytest.approx(0.355507 - 0.247708, abs=1e-5)
    assert interval.high.item() == pytest.approx(0.355507 + 0.247708, abs=1e-5)


def test_wilson_at_the_ends():
    interval = wilson_interval(torch.tensor([0, 4, 0]), torch.tensor([4, 4, 0]))
    assert interval.low[0] == 0.0
    assert interval.high[1] == 1.0
    # No success of 4: high = z^2 / (4 + z^2) = 3.841459 / 7.841459.
    assert interval.high[0].item() == pytest.approx(0.489891, abs=1e-5)
    assert interval.low[1].item() == pytest.approx(1 - 0.489891, abs=1e-5)
    assert (interval.low[2], interval.high[2]) == (0.0, 1.0)
    assert math.isnan(interval.estimate[2])


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_wilson_is_that_of_scipy(confidence):
    from scipy.stats import binomtest

    counts = [(k, n) for n in (1, 2, 7, 64, 512) for k in {0, 1, n // 3, n}]
    ours = wilson_interval(*torch.tensor(counts).T, confidence=confidence)
    for (k, n), low, high in zip(counts, ours.low.tolist(), ours.high.tolist(), strict=True):
        theirs = binomtest(k, n).proportion_ci(confidence, method="wilson")
        assert (low, high) == pytest.approx((theirs.low, theirs.high), rel=1e-14, abs=1e-15)


def test_the_ends_of_recorded_reports_stay_to_the_last_digit():
    # As evaluations of 0.1 wrote them, with the quantile 1.959963984540054 as a literal.
    z, n = 1.959963984540054, 512
    interval = wilson_interval(torch.tensor([n]), torch.tensor([n]))
    reach = z * (z**2 / 4) ** 0.5
    assert interval.low.item() == (n + z**2 / 2 - reach) / (n + z**2)


def test_wilson_holds_its_level_near_the_end():
    # Exact coverage at rate .05 and 20 trials, by summing the binomial.
    trials, rate = 20, 0.05
    successes = torch.arange(trials + 1)
    interval = wilson_interval(successes, torch.full_like(successes, trials))
    covered = (interval.low <= rate) & (rate <= interval.high)
    chance = [
        math.comb(trials, s) * rate**s * (1 - rate) ** (trials - s) for s in range(trials + 1)
    ]
    assert (torch.tensor(chance) * covered).sum().item() > 0.92


def test_clustered_interval_by_hand():
    # Clusters (1, 1), (0, 0), (1): mean .6, residual sums .8, -1.2, .4;
    # squares .64 + 1.44 + .16 = 2.24, x 3/2 / 25 = .1344; reach 1.959964 x .366606.
    values, clusters = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0]), torch.tensor([4, 4, 1, 1, 9])
    interval = clustered_mean_interval(values, clusters)
    assert interval.estimate.item() == pytest.approx(0.6)
    assert (interval.high - interval.estimate).item() == pytest.approx(0.718536, abs=1e-5)
    assert (interval.estimate - interval.low).item() == pytest.approx(0.718536, abs=1e-5)


def test_own_clusters_give_the_textbook_error():
    values = torch.tensor([1.0, 2.0, 4.0, 9.0])
    interval = clustered_mean_interval(values, torch.arange(4))
    assert (interval.high - interval.estimate).item() == pytest.approx(
        1.959964 * values.std().item() / 2, abs=1e-5
    )


def test_repeated_samples_of_a_problem_add_no_certainty():
    values = torch.tensor([1.0, 0.0, 1.0, 1.0])
    once = clustered_mean_interval(values, torch.arange(4))
    ten_times = clustered_mean_interval(values.repeat(10), torch.arange(4).repeat(10))
    torch.testing.assert_close(ten_times.low, once.low)
    naive = clustered_mean_interval(values.repeat(10), torch.arange(40))
    assert naive.high - naive.low < (once.high - once.low) / 3


def test_degenerate_clusters():
    values = torch.tensor([1.0, 0.0])
    alone = clustered_mean_interval(values, torch.zeros(2))
    assert (alone.low, alone.high) == (-math.inf, math.inf)
    equal = clustered_mean_interval(torch.ones(3), torch.arange(3))
    assert equal.low == equal.high == 1.0
    with pytest.raises(ValueError, match="at least one value"):
        clustered_mean_interval(values[:0], values[:0])


@pytest.mark.parametrize("few", [True, False])
def test_the_mean_of_what_agrees_throughout_has_wilsons_width(few):
    # 2 of 2 clusters, z^2 = 3.841459: from 2 / (2 + z^2); what goes together counts once.
    clusters = torch.tensor([4, 4, 9])
    ones = bounded_mean_interval(torch.ones(3), clusters, few=few)
    assert tuple(ones) == pytest.approx((1.0, 2 / 5.841459, 1.0), abs=1e-6)
    zeros = bounded_mean_interval(torch.zeros(3), clusters, few=few)
    assert tuple(zeros) == pytest.approx((0.0, 0.0, 3.841459 / 5.841459), abs=1e-6)
    # A range twice as wide, from its lower end.
    low = bounded_mean_interval(-torch.ones(3), clusters, lowest=-1.0, few=few)
    assert tuple(low) == pytest.approx((-1.0, -1.0, -1 + 2 * 3.841459 / 5.841459), abs=1e-6)
    (alone,) = {tuple(map(float, bounded_mean_interval(torch.ones(3), torch.zeros(3).long())))}
    assert alone == pytest.approx((1.0, 1 / 4.841459, 1.0), abs=1e-6)


def test_the_mean_of_what_does_not_agree_is_cut_to_its_range():
    mixed, clusters = torch.tensor([0.0, 1.0, 1.0, 1.0]), torch.arange(4)
    mean, low, high = clustered_mean_interval(mixed, clusters)
    # Deviation sqrt(4/3 x .75 / 16) = .25: .75 +- 1.96 x .25.
    assert (float(low), float(high)) == pytest.approx((0.26001, 1.23999), abs=1e-5)
    assert tuple(bounded_mean_interval(mixed, clusters)) == (mean, low, 1.0)
    # All alike, and at no end: nothing says how it would vary.
    half = bounded_mean_interval(torch.full((4,), 0.5), clusters)
    assert tuple(half) == (0.5, 0.5, 0.5)
    (alone,) = {tuple(map(float, bounded_mean_interval(mixed, torch.zeros(4).long())))}
    assert alone == (0.75, 0.0, 1.0)
