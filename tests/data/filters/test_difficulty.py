import polars as pl
import pytest

from posttrain.data.filters.difficulty import bucket, bucket_size, difficulty_range


def _frame(*levels: int) -> pl.DataFrame:
    return pl.DataFrame({"difficulty": levels}, schema={"difficulty": pl.Int32})


def test_both_ends_of_the_range_stay():
    reasons = difficulty_range(_frame(1, 2, 3, 4, 5), (2, 4))["reason"].to_list()
    assert reasons == ["too_easy", "", "", "", "too_hard"]


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
    judged = bucket_size(_frame(1, 9, 2, 9, 1, 9), (2,), most=2)
    assert judged["reason"].to_list() == ["", "", "", "", "bucket_full", "bucket_full"]
