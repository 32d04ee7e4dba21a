import math

import pytest
import torch

from posttrain.learning.maths.intervals import (
    bootstrap_mean_interval,
    bootstrap_means,
    clustered_mean_interval,
    normal_quantile,
    wilson_interval,
)


def test_normal_quantile():
    assert normal_quantile(0.95) == pytest.approx(1.959964, abs=1e-6)
    for confidence in (0.0, 1.0):
        with pytest.raises(ValueError, match="confidence"):
            normal_quantile(confidence)


def test_wilson_by_hand():
    # 3 of 10, z^2 = 3.841459: centre (3 + 1.920729) / 13.841459 = .355507;
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
    with pytest.raises(ValueError, match="at least one value"):
        bootstrap_mean_interval(values[:0], values[:0], generator=torch.Generator())


def test_bootstrap_agrees_with_the_formula_and_repeats():
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(400, generator=generator)
    clusters = torch.arange(100).repeat_interleave(4)
    values += torch.rand(100, generator=generator).repeat_interleave(4)
    formula = clustered_mean_interval(values, clusters)
    drawn = bootstrap_mean_interval(
        values, clusters, generator=torch.Generator().manual_seed(1), num_resamples=4000
    )
    again = bootstrap_mean_interval(
        values, clusters, generator=torch.Generator().manual_seed(1), num_resamples=4000
    )
    assert drawn == again
    reach = (formula.high - formula.low).item() / 2
    assert drawn.low.item() == pytest.approx(formula.low.item(), abs=0.1 * reach)
    assert drawn.high.item() == pytest.approx(formula.high.item(), abs=0.1 * reach)


def test_bootstrap_cuts_half_of_the_rest_off_each_end():
    # Two clusters: half of all resamples are mixed. A level under 1/2 leaves only those.
    values, clusters = torch.tensor([0.0, 1.0]), torch.tensor([0, 1])
    for confidence, ends in ((0.4, (0.5, 0.5)), (0.6, (0.0, 1.0))):
        interval = bootstrap_mean_interval(
            values,
            clusters,
            generator=torch.Generator().manual_seed(0),
            num_resamples=4000,
            confidence=confidence,
        )
        assert (interval.low, interval.high) == ends


def test_many_clusters_are_drawn_a_part_at_a_time():
    # 2^19 clusters leave room for two resamples in one part; five need three parts.
    values = (torch.arange(2**19) % 2).float()
    means = bootstrap_means(
        values, torch.arange(2**19), num_resamples=5, generator=torch.Generator().manual_seed(0)
    )
    assert len(means.unique()) == 5
    # One deviation of the mean is 1/2 / sqrt(2^19) = .0007.
    assert (means - 0.5).abs().max() < 0.003


def test_bootstrap_of_two_clusters_has_three_outcomes():
    # Means of resamples of {0, 1}: 0, 1/2, 1 with chances 1/4, 1/2, 1/4.
    interval = bootstrap_mean_interval(
        torch.tensor([0.0, 1.0]), torch.tensor([0, 1]), generator=torch.Generator().manual_seed(0)
    )
    assert [float(x) for x in interval] == [0.5, 0.0, 1.0]
