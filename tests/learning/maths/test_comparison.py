import math

import pytest
import torch

from posttrain.learning.maths.comparison import (
    exact_sign_test,
    paired_bootstrap,
    paired_comparison,
    sign_flip_test,
)
from posttrain.learning.maths.intervals import bootstrap_mean_interval


def test_paired_comparison_by_hand():
    # Differences 1 0 1 0 0: mean .4, deviation sqrt(5 x .24 / 4) = .547723, error .244949.
    first = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])
    second = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    comparison = paired_comparison(first, second, torch.arange(5))
    assert comparison.difference.estimate.item() == pytest.approx(0.4)
    assert comparison.difference.low.item() == pytest.approx(0.4 - 1.959964 * 0.244949, abs=1e-5)
    # z = 1.632993, two-sided p = erfc(z / sqrt 2).
    assert comparison.p_value == pytest.approx(math.erfc(1.632993 / math.sqrt(2)), abs=1e-5)


def test_pairing_removes_the_difficulty_of_the_items():
    generator = torch.Generator().manual_seed(0)
    difficulty = 5 * torch.rand(50, generator=generator)
    better = difficulty + 0.2 + 0.1 * torch.rand(50, generator=generator)
    assert paired_comparison(better, difficulty, torch.arange(50)).p_value < 1e-6
    shuffled = difficulty[torch.randperm(50, generator=generator)]
    assert paired_comparison(better, shuffled, torch.arange(50)).p_value > 0.05


def test_no_difference_and_a_single_cluster():
    same = torch.tensor([1.0, 0.0, 1.0])
    nothing = paired_comparison(same, same, torch.arange(3))
    assert nothing.p_value == 1.0
    assert [float(x) for x in nothing.difference] == [0.0, 0.0, 0.0]
    assert paired_comparison(same, same + 1, torch.arange(3)).p_value == 0.0
    assert paired_comparison(same, same * 0, torch.zeros(3)).p_value == 1.0


def test_p_does_not_depend_on_the_confidence():
    first, second = torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([0.0, 0.0, 1.0, 0.0])
    p_values = {
        round(paired_comparison(first, second, torch.arange(4), confidence=c).p_value, 12)
        for c in (0.5, 0.9, 0.999)
    }
    assert len(p_values) == 1


def test_paired_bootstrap_agrees_with_the_formula():
    generator = torch.Generator().manual_seed(0)
    first, second = torch.rand(300, generator=generator), torch.rand(300, generator=generator)
    first += 0.05
    formula = paired_comparison(first, second, torch.arange(300))
    drawn = paired_bootstrap(
        first, second, torch.arange(300), generator=generator, num_resamples=4000
    )
    assert drawn.p_value == pytest.approx(formula.p_value, abs=0.02)
    assert drawn.difference.low.item() == pytest.approx(formula.difference.low.item(), abs=0.01)


def test_paired_bootstrap_is_the_bootstrap_of_the_differences():
    first, second = torch.tensor([1.0, 4.0, 2.0, 7.0]), torch.tensor([0.0, 5.0, 0.0, 1.0])
    clusters = torch.tensor([0, 0, 1, 2])
    drawn = paired_bootstrap(
        first, second, clusters, generator=torch.Generator().manual_seed(3), confidence=0.6
    )
    expected = bootstrap_mean_interval(
        first - second, clusters, generator=torch.Generator().manual_seed(3), confidence=0.6
    )
    assert drawn.difference == expected


def test_bootstrap_p_is_never_zero():
    ones = torch.ones(10)
    drawn = paired_bootstrap(
        ones, ones * 0, torch.arange(10), generator=torch.Generator(), num_resamples=99
    )
    assert drawn.p_value == pytest.approx(2 / 100)
    same = paired_bootstrap(ones, ones, torch.arange(10), generator=torch.Generator())
    assert same.p_value == 1.0


def test_sign_test_by_hand():
    # 5 wins, 1 loss, 2 ties: 2 (C(6,0) + C(6,1)) / 64 = 14/64.
    differences = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, -1.0, 0.0, 0.0])
    assert exact_sign_test(differences) == pytest.approx(14 / 64)
    assert exact_sign_test(-differences) == pytest.approx(14 / 64)
    assert exact_sign_test(torch.zeros(4)) == 1.0
    assert exact_sign_test(torch.tensor([1.0, -1.0])) == 1.0
    # 2000 wins of 2000: 2 / 2^2000, far below the least float, is 0 without an error.
    assert exact_sign_test(torch.ones(2000)) == 0.0


def test_flipped_signs_by_counting():
    """Four differences of 1: of 16 assignments of signs, two have a mean as far from 0."""
    generator = torch.Generator().manual_seed(0)
    p_value = sign_flip_test(torch.ones(4), generator=generator, num_resamples=20_000)
    # Standard error sqrt(0.125 * 0.875 / 20000) = 0.0023.
    assert p_value == pytest.approx(0.125, abs=0.01)
    # 3, 1 and -1: the sum is 3; |+-3 +-1 +-1| is at least 3 in 6 of 8 assignments.
    p_value = sign_flip_test(
        torch.tensor([3.0, 1.0, -1.0]), generator=generator, num_resamples=20_000
    )
    assert p_value == pytest.approx(0.75, abs=0.012)


def test_flipped_signs_never_say_zero_and_are_one_where_nothing_differs():
    generator = torch.Generator().manual_seed(0)
    assert sign_flip_test(torch.zeros(5), generator=generator, num_resamples=99) == 1.0
    assert sign_flip_test(torch.ones(50), generator=generator, num_resamples=99) == 1 / 100
