"""Gates on metrics: what passes, what does not, and that noise does not."""

import random

import numpy as np
import pytest

from posttrain.publishing.release import resampling
from posttrain.publishing.release.config import (
    ImprovementGate,
    NoRegressionGate,
    ReleaseConfig,
    ThresholdGate,
)
from posttrain.publishing.release.resampling import bootstrap, sign_flip_test
from posttrain.publishing.release.results import Results
from posttrain.publishing.release.statistics import estimates, interval, lower_bound, sign_test
from posttrain.stage.errors import UserError

BASIS = {"problems": "p", "params": "q", "code": "c"}
SAMPLES = 8


def results(rates, *, seeds=3, seed=0, policy="policy"):
    """Draws with these chances of being right, one per problem."""
    chance = random.Random(seed)
    by_seed = {
        str(number): {
            f"problem{place:04}": (sum(chance.random() < rate for _ in range(SAMPLES)), SAMPLES)
            for place, rate in enumerate(rates)
        }
        for number in range(seeds)
    }
    return Results(policy, BASIS, by_seed)


def exact(counts, *, seeds=3):
    """Counts right of 8, the same in every seed."""
    found = {f"problem{place:04}": (count, SAMPLES) for place, count in enumerate(counts)}
    return Results("policy", BASIS, {str(seed): found for seed in range(seeds)})


def improvement(asked, ours, theirs):
    return asked.decide(ours, theirs)


def gate(**settings):
    return ImprovementGate(name="better", kind="improvement", **settings)


def rates(num_problems, seed):
    chance = random.Random(seed)
    return [chance.random() for _ in range(num_problems)]


def test_a_clear_improvement_passes():
    before = rates(100, 1)
    after = [min(1.0, rate + 0.2) for rate in before]
    verdict = improvement(gate(), results(after, seed=2), results(before, seed=3))
    assert verdict.passed
    assert 0.1 < verdict.figures["difference"] < 0.25
    assert verdict.figures["seeds"] == 3
    worse = improvement(gate(), results(before, seed=3), results(after, seed=2))
    assert not worse.passed


def few_differ(chance):
    """20 problems of which one in five is solved by chance and the others always or never."""
    return [0.5 if chance.random() < 0.2 else chance.choice([0.0, 1.0]) for _ in range(20)]


def all_differ(chance):
    """20 problems of any difficulty."""
    return [chance.random() for _ in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "confidence"),
    [(few_differ, 0.95), (all_differ, 0.8), (few_differ, 0.8), (all_differ, 0.95)],
)
def test_rng_passes_at_most_as_often_as_alpha(draw, confidence):
    """Equal policies, 500 times: better by chance, in one of two directions, at most alpha / 2.

    The smallest number of problems that is allowed, where a bootstrap is too sure of itself.
    """
    chance = random.Random(20261121)
    asked, passed = gate(confidence=confidence, seeds=2), 0
    for trial in range(500):
        same = draw(chance)
        ours, theirs = (results(same, seeds=2, seed=2 * trial + each) for each in (0, 1))
        passed += improvement(asked, ours, theirs).passed
    alpha = 1 - confidence
    # Three standard errors of 500 draws above the half that goes in this direction.
    assert passed / 500 <= alpha / 2 + 3 * (alpha / 2 * (1 - alpha / 2) / 500) ** 0.5
    assert passed / 500 <= alpha


def test_winning_often_by_little_and_losing_seldom_by_much_is_no_improvement():
    # 7 of 8 problems won by 1/8, the others lost by 7/8: the mean difference is 0. One win more,
    # as half of all draws have, and signs alone (449 of 512) would call it an improvement.
    ours, theirs = exact([1] * 449 + [0] * 63), exact([0] * 449 + [7] * 63)
    assert not improvement(gate(), ours, theirs).passed
    refused = improvement(gate(test="sign"), ours, theirs)
    assert not refused.passed
    assert "policies equal in the mean can pass; leave out test, or set test: mean" in (
        refused.remedy
    )
    assert not improvement(gate(test="sign"), exact([8] * 100), exact([0] * 100)).passed


def test_few_wins_and_no_loss_are_no_improvement():
    # 4 differences of 1/2 among 100: the share of one unseen problem that may lose 1 exceeds half
    # of what the 4 have in more than 2.5% of draws.
    assert not improvement(gate(), exact([8] * 4 + [4] * 96), exact([4] * 100)).passed
    # 40 of 40 by 1/2: the bound is -1 + 1.5 * 0.025^(1/40) = 0.368.
    verdict = improvement(gate(), exact([8] * 40), exact([4] * 40))
    assert verdict.figures["low"] == pytest.approx(-1 + 1.5 * 0.025 ** (1 / 40))
    assert verdict.passed


def test_a_single_seed_never_shows_an_improvement():
    with pytest.raises(UserError, match=r"gates\.0.*seeds"):
        ReleaseConfig.parse(
            {"gates": [{"name": "better", "kind": "improvement", "seeds": 1}]}, where="release"
        )
    # Every problem right against every problem wrong, and still only one seed of it.
    verdict = improvement(gate(seeds=2), exact([8] * 100, seeds=1), exact([0] * 100, seeds=3))
    assert not verdict.passed
    assert "1 of 2 seeds" in verdict.remedy
    other = improvement(gate(seeds=2), exact([8] * 100, seeds=3), exact([0] * 100, seeds=1))
    assert not other.passed


def test_too_few_problems_for_the_best_case_are_refused():
    # 5 of 5: -1 + 2 * 0.025^(1/5) = -0.04; 6 of 6: 0.08.
    few = improvement(gate(), exact([8] * 5), exact([0] * 5))
    assert not few.passed
    assert "5 problems are too few (6 are enough for" in few.remedy
    assert improvement(gate(), exact([8] * 6), exact([0] * 6)).passed
    # 0.98^n <= 0.025 from n = 183 on: log(0.025) / log(0.98) = 182.6.
    asked = NoRegressionGate(name="n", kind="no_regression", tolerance=0.02)
    lost = asked.decide(exact([4] * 182), exact([4] * 182))
    assert "182 problems are too few (183 are enough for a policy that loses none" in lost.remedy
    assert asked.decide(exact([4] * 183), exact([4] * 183)).passed
    # 0.85^n <= 0.025 from n = 23 on.
    reached = ThresholdGate(name="t", kind="threshold", at_least=0.85)
    assert "22 problems are too few (23 are" in reached.decide(exact([8] * 22)).remedy
    assert reached.decide(exact([8] * 23)).passed
    never = ThresholdGate(name="t", kind="threshold", at_least=1.0)
    assert "(no number is enough" in never.decide(exact([8] * 1000)).remedy


def test_more_samples_a_problem_than_were_taken_are_refused():
    asked = ThresholdGate(name="t", kind="threshold", at_least=0.1, metric="pass_at_32")
    assert "pass_at_32 needs 32 samples of each problem, and there are 24" in (
        asked.decide(exact([8] * 100)).remedy
    )


def test_results_on_another_basis_or_other_problems_are_not_compared():
    ours = exact([8] * 30)
    other = Results("other", {**BASIS, "params": "other"}, exact([0] * 30).by_seed)
    verdict = improvement(gate(), ours, other)
    assert not verdict.passed
    assert "other params" in verdict.remedy
    fewer = improvement(gate(), ours, exact([0] * 29))
    assert not fewer.passed
    assert "other problems" in fewer.remedy


def test_the_margin_must_be_exceeded():
    # 6 of 8 against 4 of 8 on every problem: -1 + 1.25 * 0.025^(1/30) = 0.105.
    ours, theirs = exact([6] * 30), exact([4] * 30)
    assert improvement(gate(margin=0.1), ours, theirs).passed
    assert not improvement(gate(margin=0.11), ours, theirs).passed


def test_a_threshold_is_about_the_lower_end():
    # 50 problems solved and 50 not: mean 0.5, error sqrt(0.25 / 100) = 0.05, low near 0.40.
    ours = exact([8] * 50 + [0] * 50)

    def judged(at_least):
        asked = ThresholdGate(name="t", kind="threshold", at_least=at_least)
        return asked.decide(ours)

    assert judged(0.38).passed
    assert not judged(0.45).passed
    assert judged(0.45).figures["value"] == 0.5
    assert judged(0.45).figures["low"] == pytest.approx(0.40, abs=0.015)


def test_all_solved_is_not_certainty():
    # Clopper and Pearson, 60 of 60: low = 0.025^(1/60).
    asked = ThresholdGate(name="t", kind="threshold", at_least=0.94)
    verdict = asked.decide(exact([8] * 60))
    assert verdict.passed
    assert verdict.figures["low"] == pytest.approx(0.025 ** (1 / 60))
    none = estimates(exact([0] * 60))["pass_at_1"]
    assert none["high"] == pytest.approx(1 - 0.025 ** (1 / 60))


@pytest.mark.parametrize(("solved", "asked"), [(0, 7), (1, 7), (19, 20), (40, 100), (400, 512)])
def test_of_rights_and_wrongs_the_interval_is_that_of_clopper_and_pearson(solved, asked):
    from scipy.stats import beta

    ends = interval(1.0 * (np.arange(asked) < solved), 0.95, lowest=0.0, highest=1.0)
    low = beta.ppf(0.025, solved, asked - solved + 1) if solved else 0.0
    assert ends == pytest.approx((low, beta.ppf(0.975, solved + 1, asked - solved)), abs=1e-12)


def test_the_bound_of_one_and_of_two_problems_by_hand():
    # One: D_1 is uniform. Two, of x and 1 from 0: x D_1 + D_2 <= t is a triangle of the simplex
    # with legs t / x and t where t <= x, and the simplex has the area 1/2: t^2 / x.
    assert lower_bound(np.array([0.5]), 0.1, lowest=0.0) == pytest.approx(0.05)
    assert lower_bound(np.array([0.4, 1.0]), 0.1, lowest=0.0) == pytest.approx(0.04**0.5)
    # From -1: the same, moved.
    assert lower_bound(np.array([-0.6, 0.0]), 0.1, lowest=-1.0) == pytest.approx(0.04**0.5 - 1)


def test_a_better_problem_never_lowers_the_bound():
    chance = np.random.default_rng(3)
    for _ in range(50):
        values = chance.integers(0, 9, 12) / 8
        better = values.copy()
        better[chance.integers(12)] += 0.125
        before, after = (lower_bound(each, 0.025, lowest=0.0) for each in (values, better))
        assert after > before


def test_the_bound_is_the_quantile_of_dirichlet_weights():
    chance = np.random.default_rng(1)
    values = chance.integers(-8, 9, 30) / 8
    weights = chance.dirichlet(np.ones(31), 200_000)
    low = lower_bound(values, 0.025, lowest=-1.0)
    below = (weights @ np.append(values, -1.0) <= low).mean()
    # Five standard deviations of 200,000 draws.
    assert below == pytest.approx(0.025, abs=5 * (0.025 * 0.975 / 200_000) ** 0.5)


@pytest.mark.parametrize("at_least", [0.85, 0.9, 0.95])
@pytest.mark.parametrize("num_problems", [20, 100])
def test_a_threshold_that_is_just_missed_passes_as_seldom_as_stated(at_least, num_problems):
    """Every possible outcome through the gate, weighed by the binomial."""
    from scipy.stats import binom

    asked = ThresholdGate(name="t", kind="threshold", at_least=at_least)
    passing = [
        solved
        for solved in range(num_problems + 1)
        if asked.decide(exact([8] * solved + [0] * (num_problems - solved), seeds=1)).passed
    ]
    assert passing == list(range(num_problems + 1 - len(passing), num_problems + 1))
    assert binom.pmf(passing, num_problems, at_least).sum() <= 0.025


def test_no_regression_allows_the_tolerance_and_no_more():
    # Each problem loses 1/8, and one unseen may lose all: -1 + 7/8 * 0.025^(1/100) = -0.157.
    ours, theirs = exact([4] * 100), exact([5] * 100)

    def judged(tolerance):
        asked = NoRegressionGate(name="n", kind="no_regression", tolerance=tolerance)
        return asked.decide(ours, theirs)

    assert judged(0.158).passed
    assert not judged(0.156).passed


def test_seeds_are_pooled_by_problem():
    by_seed = {"0": {"a": (1, 2), "b": (0, 2)}, "1": {"a": (2, 2), "b": (0, 2)}}
    pooled = Results("p", BASIS, by_seed).pooled()
    assert pooled == {"a": (3, 4), "b": (0, 4)}


def test_sign_test_by_hand():
    # 5 wins, 1 loss, 2 ties: 2 (C(6,0) + C(6,1)) / 64 = 14/64.
    differences = np.array([1.0, 1.0, 1.0, 1.0, 1.0, -1.0, 0.0, 0.0])
    assert sign_test(differences) == pytest.approx(14 / 64, rel=1e-12)
    assert sign_test(-differences) == pytest.approx(14 / 64, rel=1e-12)
    assert sign_test(np.zeros(4)) == 1.0
    assert sign_test(np.array([1.0, -1.0])) == 1.0
    # 2000 wins of 2000: 2 / 2^2000, far below the least float, is 0 without an error.
    assert sign_test(np.ones(2000)) == 0.0


def test_flipped_signs_by_counting():
    # Four differences of 1: of 16 assignments of signs, two have a mean as far from 0.
    assert sign_flip_test(np.ones(4)) == pytest.approx(2 / 16)
    # 3, 1 and -1: the sum is 3; in 3 of 8 assignments it is at least 3, in 3 at most -3.
    assert sign_flip_test(np.array([3.0, 1.0, -1.0])) == pytest.approx(6 / 8)
    # The same numbers in another order sum to another last digit, and are no smaller for it.
    assert sign_flip_test(np.array([0.1, 0.2, 0.3] * 4)) == pytest.approx(2 / 2**12)


def test_flipped_signs_never_say_zero_and_are_one_where_nothing_differs():
    assert sign_flip_test(np.zeros(5)) == 1.0
    # Of 2^50 assignments 10,000 are drawn: none of them is as extreme, on either side.
    assert sign_flip_test(np.ones(50)) == pytest.approx(2 / 10_001)


def test_bootstrap_agrees_with_the_formula_and_repeats():
    values = np.random.default_rng(0).random(400)
    low, high, means = bootstrap(values, 0.95)
    assert (low, high) == bootstrap(values, 0.95)[:2]
    reach = 1.959964 * values.std(ddof=1) / 20
    assert low == pytest.approx(values.mean() - reach, abs=0.1 * reach)
    assert high == pytest.approx(values.mean() + reach, abs=0.1 * reach)
    assert len(means) == 10_000


def test_bootstrap_cuts_half_of_the_rest_off_each_end():
    # Means of resamples of {0, 1}: 0, 1/2, 1 with chances 1/4, 1/2, 1/4. A level under 1/2 leaves
    # only the mixed ones.
    values = np.array([0.0, 1.0])
    assert bootstrap(values, 0.4)[:2] == (0.5, 0.5)
    assert bootstrap(values, 0.6)[:2] == (0.0, 1.0)


def test_many_problems_are_drawn_a_part_at_a_time(monkeypatch):
    # 2^20 problems leave room for four resamples in one part; ten need three.
    monkeypatch.setattr(resampling, "_RESAMPLES", 10)
    means = bootstrap(np.arange(2**20) % 2, 0.95)[2]
    assert len(np.unique(means)) == 10
    # One deviation of the mean is 1/2 / 2^10 = .0005.
    assert np.abs(means - 0.5).max() < 0.0025
