import random
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posttrain.data.batching import Batches, Mixture, Paced, length_buckets, plan_steps
from posttrain.data.rows import TokenRow, TokenTable
from posttrain.stage.errors import UserError

ROWS = [TokenRow((1, 5, 6, 2), start=2), TokenRow((1, 7, 2), start=1), TokenRow((1, 8, 9, 9, 2), 4)]
LENGTHS = st.lists(st.integers(2, 60), min_size=1, max_size=200)


@given(lengths=LENGTHS, budget=st.integers(1, 400), seed=st.integers(0, 5))
def test_an_epoch_has_every_row_once_within_the_budget(lengths, budget, seed):
    steps = plan_steps(lengths, batch_tokens=budget, epochs=1.0, seed=seed)
    assert sorted(row for step in steps for row in step) == list(range(len(lengths)))
    for step in steps:
        assert len(step) == 1 or len(step) * max(lengths[row] for row in step) <= budget


@given(lengths=LENGTHS, budget=st.integers(1, 400))
def test_length_buckets_hold_rows_of_neighboring_length(lengths, budget):
    buckets = length_buckets(range(len(lengths)), lengths, budget)
    flat = [lengths[row] for bucket in buckets for row in bucket]
    assert flat == sorted(lengths)


def test_the_order_is_a_function_of_the_seed_and_differs_between_epochs():
    lengths = [5 + index % 7 for index in range(300)]
    plan = plan_steps(lengths, batch_tokens=100, epochs=2.0, seed=0)
    assert plan == plan_steps(lengths, batch_tokens=100, epochs=2.0, seed=0)
    assert plan != plan_steps(lengths, batch_tokens=100, epochs=2.0, seed=1)
    half = len(plan) // 2
    assert plan[:half] == plan_steps(lengths, batch_tokens=100, epochs=1.0, seed=0)
    assert plan[half:] != plan[:half]


def test_a_fraction_of_an_epoch_is_that_share_of_its_batches():
    # 40 rows of 10 tokens at 100 tokens a batch: 4 batches an epoch.
    assert len(plan_steps([10] * 40, batch_tokens=100, epochs=1.5, seed=0)) == 6
    assert len(plan_steps([10] * 40, batch_tokens=100, epochs=0.01, seed=0)) == 1


def test_a_number_of_steps_takes_as_many_epochs_as_it_needs():
    plan = plan_steps([10] * 40, batch_tokens=100, epochs=1.0, seed=0, num_steps=10)
    assert len(plan) == 10
    longer = plan_steps([10] * 40, batch_tokens=100, epochs=3.0, seed=0)
    assert plan == longer[:10]


def test_a_mixture_gives_each_source_its_share_of_the_tokens():
    # 100 rows of 10 tokens from a, 20 rows of 30 tokens from b: 1600 tokens an epoch.
    lengths, groups = [10] * 100 + [30] * 20, ["a"] * 100 + ["b"] * 20
    steps = plan_steps(
        lengths, batch_tokens=300, epochs=3.0, seed=0, taken=Mixture(groups, {"a": 1.0, "b": 3.0})
    )
    drawn = Counter(row for step in steps for row in step)
    tokens = Counter()
    for row, times in drawn.items():
        tokens[groups[row]] += lengths[row] * times
    # 3 epochs x 1600 tokens, a quarter of a and three quarters of b.
    assert tokens["a"] == pytest.approx(1200, abs=30)
    assert tokens["b"] == pytest.approx(3600, abs=90)
    # 120 draws from 100 rows, and of 20: a row comes round again only when all had their turn.
    assert max(drawn[row] for row in range(100)) - min(drawn[row] for row in range(100)) <= 1
    assert {drawn[row] for row in range(100, 120)} == {6}


def test_a_source_that_the_mixture_leaves_out_is_not_used():
    steps = plan_steps(
        [10] * 20, batch_tokens=50, epochs=1.0, seed=0, taken=Mixture(["a", "b"] * 10, {"a": 1.0})
    )
    assert {row % 2 for step in steps for row in step} == {0}


def test_a_mixture_of_an_unknown_source_is_refused():
    with pytest.raises(UserError, match="mixture names 'c', which has no row; .* are: a, b"):
        plan_steps(
            [10, 10], batch_tokens=50, epochs=1.0, seed=0, taken=Mixture(["a", "b"], {"c": 1.0})
        )


def test_micro_batches_split_a_step_without_losing_a_row():
    table = TokenTable(ROWS, pad=0)
    batches = Batches([[0, 1, 2]], [4, 3, 5], table.batch, micro_batch_tokens=8)
    parts = batches.micro_batches(0)
    # Sorted by length: 3 and 4 fill 2 x 4 = 8 tokens, 5 is alone.
    assert [part.input_ids_BT.shape for part in parts] == [torch.Size([2, 4]), torch.Size([1, 5])]
    assert sum(part.num_units for part in parts) == table.batch([0, 1, 2]).num_units == 5


@given(lengths=LENGTHS, budget=st.integers(1, 400), seed=st.integers(0, 5))
def test_packed_steps_count_tokens_and_no_padding(lengths, budget, seed):
    steps = plan_steps(lengths, batch_tokens=budget, epochs=1.0, seed=seed, packed=True)
    assert sorted(row for step in steps for row in step) == list(range(len(lengths)))
    for step in steps:
        assert len(step) == 1 or sum(lengths[row] for row in step) <= budget


def test_rows_as_given_come_in_the_order_of_the_table_in_every_epoch():
    lengths = [10, 30, 20, 10, 50, 200, 10]
    plan = plan_steps(lengths, batch_tokens=60, epochs=2.0, seed=None)
    # 10 and 30 make 60 padded tokens, 20 and 10 40, with 50 it would be 150; 200 stands alone.
    assert plan == [[0, 1], [2, 3], [4], [5], [6]] * 2
    assert plan_steps(lengths, batch_tokens=60, epochs=0.5, seed=None) == plan[:2]
    numbered = plan_steps(lengths, batch_tokens=60, epochs=1.0, seed=None, num_steps=7)
    assert numbered == plan[:7]


def test_packed_steps_leave_under_two_percent_of_their_budget_free():
    source = random.Random(0)
    lengths = [min(1024, int(source.lognormvariate(5.2, 0.6))) for _ in range(4000)]
    steps = plan_steps(lengths, batch_tokens=2048, epochs=1.0, seed=0, packed=True)
    taken = [sum(lengths[row] for row in step) for step in steps]
    # One step is whatever the pass has left.
    assert sum(taken) - min(taken) > 0.98 * 2048 * (len(taken) - 1)
    # Shuffled: the rows that were too long for company are not the first steps.
    assert len({len(step) for step in steps[:20]}) > 3


def test_packed_rows_as_given_count_no_padding():
    plan = plan_steps([10, 30, 20, 10, 50], batch_tokens=60, epochs=1.0, seed=None, packed=True)
    assert plan == [[0, 1, 2], [3, 4]]


def test_a_mixture_has_no_order():
    mixture = Mixture(["a", "b"], {"a": 1.0, "b": 1.0})
    with pytest.raises(ValueError, match="so it needs a seed"):
        plan_steps([1, 1], batch_tokens=2, epochs=1.0, seed=None, taken=mixture)


def test_a_paced_pass_takes_the_first_rows_of_the_table():
    steps = plan_steps(
        [1] * 10,
        batch_tokens=2,
        epochs=3.0,
        seed=0,
        taken=Paced(_share),
    )
    # Two passes over two rows, a step each; then three steps over the first six.
    assert [sorted(row for step in steps[begin:end] for row in step) for begin, end in _CUTS] == [
        [0, 1],
        [0, 1],
        [0, 1, 2, 3, 4, 5],
    ]
    in_order = plan_steps(
        [1] * 10, batch_tokens=2, epochs=1.0, seed=None, taken=Paced(lambda _step, _number: 0.4)
    )
    assert in_order == [[0, 1], [2, 3]]


def test_a_paced_pass_draws_easy_rows_sooner_and_other_ones_each_time():
    # Nine rows of ease 1 and one of 1000: it is hardly ever left out of two.
    paced = Paced(lambda _step, _number: 0.2, ease=[1.0] * 9 + [1000.0], seed=3)
    passes = [paced.take(range(10), step=0, number=number) for number in range(200)]
    assert all(len(each) == 2 and each == sorted(each) for each in passes)
    assert sum(9 in each for each in passes) >= 195
    assert {row for each in passes for row in each} == set(range(10))
    assert passes[7] == paced.take(range(10), step=99, number=7)


def _share(step, _number):
    return 0.2 if step < 2 else 0.6


_CUTS = ((0, 1), (1, 2), (2, 5))
