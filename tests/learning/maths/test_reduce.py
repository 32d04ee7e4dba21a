import pytest
import torch

from posttrain.learning.maths.reduce import (
    TOKEN_WEIGHT_FORMULAS,
    aggregate,
    detached,
    loss_denominator,
    masked_mean,
    masked_sum,
)

MASK = torch.tensor([[True, True, True], [True, False, False]])
LOSS = torch.tensor([[1.0, 2.0, 6.0], [5.0, 100.0, 100.0]])


def test_masked_sum_and_mean():
    assert masked_sum(LOSS, MASK) == 14.0  # 1 + 2 + 6 + 5
    assert masked_mean(LOSS, MASK) == 3.5
    assert masked_sum(LOSS, MASK, -1).tolist() == [9.0, 5.0]
    assert masked_mean(LOSS, MASK, -1).tolist() == [3.0, 5.0]


def test_masked_tokens_may_hold_anything():
    loss = LOSS.clone()
    loss[1, 1], loss[1, 2] = float("nan"), float("inf")
    assert masked_mean(loss, MASK) == 3.5
    assert masked_mean(loss, MASK & False) == 0.0


def test_half_precision_is_summed_in_float32():
    # 4096 + 1 is not a bfloat16 number.
    values = torch.tensor([4096.0, 1.0], dtype=torch.bfloat16)
    assert masked_sum(values, torch.ones(2)).item() == 4097.0


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token_mean", 14 / 4),
        ("sequence_mean_token_mean", (3 + 5) / 2),
        ("sequence_mean_token_sum", (9 + 5) / 2),
        ("constant_length", 14 / (2 * 10)),
    ],
)
def test_aggregations_by_hand(aggregation, expected):
    denominator = loss_denominator(MASK, aggregation, constant_length=10)
    loss = aggregate(LOSS, MASK, aggregation=aggregation, denominator=denominator)
    assert loss.item() == pytest.approx(expected)


def test_rows_that_only_fill_up_change_nothing():
    mask = torch.cat([MASK, torch.zeros(2, 3, dtype=torch.bool)])
    for aggregation in TOKEN_WEIGHT_FORMULAS:
        assert loss_denominator(mask, aggregation, constant_length=7) == loss_denominator(
            MASK, aggregation, constant_length=7
        )


@pytest.mark.parametrize("aggregation", list(TOKEN_WEIGHT_FORMULAS))
@pytest.mark.parametrize("parts", [[4], [1, 3], [2, 2], [1, 1, 1, 1], [3, 0, 1]])
def test_any_split_gives_the_gradient_of_one_batch(aggregation, parts):
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(4, 6, generator=generator)
    mask = torch.arange(6) < torch.tensor([[6], [1], [0], [3]])

    def gradient(parts):
        weight = torch.ones(6, requires_grad=True)
        denominator = sum(
            loss_denominator(part, aggregation, constant_length=6) for part in mask.split(parts)
        )
        for rows, part in zip(values.split(parts), mask.split(parts), strict=True):
            loss = (weight * rows).sin()
            aggregate(loss, part, aggregation=aggregation, denominator=denominator).backward()
        return weight.grad

    torch.testing.assert_close(gradient(parts), gradient([4]), atol=1e-6, rtol=0)


def test_an_empty_part_has_loss_and_gradient_zero():
    weight = torch.ones(3, requires_grad=True)
    loss = aggregate(weight * LOSS, MASK & False, aggregation="token_mean", denominator=4.0)
    loss.backward()
    assert loss == 0.0
    assert weight.grad.tolist() == [0.0] * 3


def test_constant_length_must_be_given():
    with pytest.raises(ValueError, match="constant_length"):
        loss_denominator(MASK, "constant_length")


def test_metrics_do_not_keep_the_graph():
    value = torch.ones(1, requires_grad=True) * 2
    assert not detached({"value": value})["value"].requires_grad
