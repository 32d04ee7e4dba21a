import polars as pl
import pytest

from posttrain.data.filters.base import FilterInputs
from posttrain.data.filters.bucket_size import BucketSizeFilter, bucket
from posttrain.data.filters.difficulty_range import DifficultyRangeFilter


def _frame(*levels: int) -> pl.DataFrame:
    return pl.DataFrame({"difficulty": levels}, schema={"difficulty": pl.Int32})


def test_both_ends_of_the_range_stay():
    part, frame = DifficultyRangeFilter(least=2, most=4), _frame(1, 2, 3, 4, 5)
    reasons = part.reasons(frame, FilterInputs())["reason"].to_list()
    assert reasons == ["too_easy", "", "", "", "too_hard"]


def test_a_bound_that_is_not_set_drops_nothing():
    frame = _frame(1, 2, 3)
    for part in (DifficultyRangeFilter(), BucketSizeFilter()):
        assert part.reasons(frame, FilterInputs())["reason"].to_list() == [""] * 3


@pytest.mark.parametrize(
    ("edges", "names"),
    [
        ((), ["-1", "2", "3", "4", "5", "6", "7"]),
        ((2, 5), ["..2", "..2", "3-5", "3-5", "3-5", "6+", "6+"]),
        ((3, 4), ["..3", "..3", "..3", "4", "5+", "5+", "5+"]),
    ],
)
def test_an_edge_is_the_last_difficulty_of_its_bucket(edges, names):
    frame = _frame(-1, 2, 3, 4, 5, 6, 7)
    assert frame.select(bucket(edges))["bucket"].to_list() == names


def test_a_full_bucket_takes_no_more():
    inputs = FilterInputs(difficulty_edges=(2,))
    judged = BucketSizeFilter(most=2).reasons(_frame(1, 9, 2, 9, 1, 9), inputs)
    assert judged["reason"].to_list() == ["", "", "", "", "bucket_full", "bucket_full"]
