"""Gates on metrics: what passes, what does not, and that noise does not."""

import random

import numpy as np
import pytest

from posttrain.publishing.release import statistics
from posttrain.publishing.release.config import (
    ImprovementGate,
    NoRegressionGate,
    ReleaseConfig,
    ThresholdGate,
)
from posttrain.publishing.release.results import Results
from posttrain.publishing.release.statistics import (
    bootstrap,
    estimates,
    sign_flip_test,
    sign_test,
)
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


@pytest.mark.parametrize("test", ["paired_bootstrap", "sign"])
def test_a_clear_improvement_passes(test):
    before = rates(100, 1)
    after = [min(1.0, rate + 0.2) for rate in before]
    verdict = improvement(gate(test=test), results(after, seed=2), results(before, seed=3))
    assert verdict.passed
    assert 0.1 < verdict.figures["difference"] < 0.25
    assert verdict.figures["seeds"] == 3
    worse = improvement(gate(test=test), results(before, seed=3), results(after, seed=2))
    assert not worse.passed


def few_differ(chance):
    """20 problems of which one in five is solved by chance and the others always or never."""
    return [0.5 if chance.random() < 0.2 else chance.choice([0.0, 1.0]) for _ in range(20)]


def all_differ(chance):
    """20 problems of any difficulty."""
    return [chance.random() for _ in range(20)]


@pytest.mark.parametrize("draw", [few_differ, all_differ])
@pytest.mark.parametrize(
    ("test", "confidence"), [("paired_bootstrap", 0.95), ("paired_bootstrap", 0.8), ("sign", 0.95)]
)
def test_rng_passes_at_most_as_often_as_alpha(monkeypatch, draw, test, confidence):
    """Equal policies, 500 times: better by chance, in one of two directions, at most alpha / 2.

    The smallest number of problems that is allowed, where a bootstrap is too sure of itself.
    """
    monkeypatch.setattr(statistics, "_RESAMPLES", 999)
    chance = random.Random(20261121)
    asked, passed = gate(test=test, confidence=confidence, seeds=2), 0
    for trial in range(500):
        same = draw(chance)
        ours, theirs = (results(same, seeds=2, seed=2 * trial + each) for each in (0, 1))
        passed += improvement(asked, ours, theirs).passed
    alpha = 1 - confidence
    # Three standard errors of 500 draws above the half that goes in this direction.
    assert passed / 500 <= alpha / 2 + 3 * (alpha / 2 * (1 - alpha / 2) / 500) ** 0.5
    assert passed / 500 <= alpha


def test_four_wins_and_no_loss_are_no_improvement():
    # A bootstrap draws none of the four with chance 0.96^100 = 0.017 < 0.025, and would pass it;
    # of the 16 ways to flip four signs two are as extreme: p = 2 / 16.
    verdict = improvement(gate(), exact([8] * 4 + [4] * 96), exact([4] * 100))
    assert verdict.figures["low"] > 0
    assert verdict.figures["p_flipped"] == pytest.approx(2 / 16, abs=0.01)
    assert not verdict.passed
    # Six of six: 2 / 64.
    assert improvement(gate(), exact([8] * 6 + [4] * 94), exact([4] * 100)).passed


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


def test_few_problems_have_no_bootstrap_interval():
    verdict = improvement(gate(), exact([8] * 19), exact([0] * 19))
    assert not verdict.passed
    assert "19 problems are too few" in verdict.remedy
    # 19 wins of 19: two-sided p = 2 / 2^19.
    signs = improvement(gate(test="sign"), exact([8] * 19), exact([0] * 19))
    assert signs.passed
    assert signs.figures["p_value"] == pytest.approx(2 / 2**19)
    # 5 wins of 5 have p = 2 / 32 = 0.0625.
    few = improvement(gate(test="sign"), exact([8] * 5), exact([0] * 5))
    assert not few.passed


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
    # 6 of 8 against 4 of 8 on every problem: a difference of exactly 0.25, without spread.
    ours, theirs = exact([6] * 30), exact([4] * 30)
    assert improvement(gate(margin=0.2), ours, theirs).passed
    assert not improvement(gate(margin=0.25), ours, theirs).passed


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
    # Wilson, 30 of 30: low = 30 / (30 + 1.96^2) = 0.8865.
    asked = ThresholdGate(name="t", kind="threshold", at_least=0.95)
    verdict = asked.decide(exact([8] * 30))
    assert not verdict.passed
    assert verdict.figures["low"] == pytest.approx(30 / (30 + 1.959964**2))
    none = estimates(exact([0] * 30))["pass_at_1"]
    assert none["high"] == pytest.approx(1.959964**2 / (30 + 1.959964**2))


def test_no_regression_allows_the_tolerance_and_no_more():
    ours, theirs = exact([4] * 30), exact([5] * 30)

    def judged(tolerance):
        asked = NoRegressionGate(name="n", kind="no_regression", tolerance=tolerance)
        return asked.decide(ours, theirs)

    assert judged(0.13).passed
    assert not judged(0.12).passed


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
    monkeypatch.setattr(statistics, "_RESAMPLES", 10)
    means = bootstrap(np.arange(2**20) % 2, 0.95)[2]
    assert len(np.unique(means)) == 10
    # One deviation of the mean is 1/2 / 2^10 = .0005.
    assert np.abs(means - 0.5).max() < 0.0025
