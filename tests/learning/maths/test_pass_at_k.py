import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posttrain.learning.maths.pass_at_k import majority_vote, pass_at_k


def test_by_hand():
    # 1 - C(3, 2) / C(5, 2) = 1 - 3/10.
    correct, samples = torch.tensor([2]), torch.tensor([5])
    assert pass_at_k(correct, samples, k=2).item() == pytest.approx(0.7)


@given(
    st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))
)
def test_equals_counting_every_draw(case):
    num_samples, num_correct, k = case
    draws = list(
        itertools.combinations([True] * num_correct + [False] * (num_samples - num_correct), k)
    )
    arguments = torch.tensor([num_correct]), torch.tensor([num_samples])
    expected_any = sum(any(draw) for draw in draws) / len(draws)
    assert pass_at_k(*arguments, k=k).item() == pytest.approx(expected_any)


def test_rows_with_different_numbers_of_samples_and_exact_ends():
    correct, samples = torch.tensor([0, 3, 4, 1]), torch.tensor([9, 4, 4, 2])
    assert pass_at_k(correct, samples, k=2).tolist() == [0.0, 1.0, 1.0, 1.0]


def test_large_numbers_do_not_overflow():
    got = pass_at_k(torch.tensor([7]), torch.tensor([10_000]), k=1000).item()
    expected = 1 - math.comb(9_993, 1000) / math.comb(10_000, 1000)
    assert got == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("k", [0, 5])
def test_k_out_of_range_is_refused(k):
    with pytest.raises(ValueError, match="k must lie"):
        pass_at_k(torch.tensor([1, 1]), torch.tensor([8, 4]), k=k)


def test_majority_vote():
    # Problem 7: answer 1 twice (right). Problem 3: answers 5 and 6 tie, 6 is right.
    # Problem 4: the commonest answer is wrong. Answer ids mean nothing across problems.
    groups = torch.tensor([7, 7, 7, 3, 3, 4, 4, 4])
    answers = torch.tensor([1, 5, 1, 5, 6, 1, 1, 5])
    correct = torch.tensor([1, 0, 1, 0, 1, 0, 0, 1])
    assert majority_vote(answers, correct, groups).tolist() == [0.5, 0.0, 1.0]
    order = torch.tensor([4, 0, 7, 1, 3, 2, 6, 5])
    permuted = majority_vote(answers[order], correct[order], groups[order])
    assert permuted.tolist() == [0.5, 0.0, 1.0]


def test_a_winning_answer_with_two_verdicts_is_right_by_the_share_that_says_so():
    # One answer, said three times and found right once, whichever sample that was.
    same, group = torch.ones(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    for verdicts in ([1, 0, 0], [0, 1, 0], [0, 0, 1]):
        assert majority_vote(same, torch.tensor(verdicts), group).tolist() == [pytest.approx(1 / 3)]
