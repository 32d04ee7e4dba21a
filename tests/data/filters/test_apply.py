import polars as pl
import pytest

from posttrain.data.filters.apply import (
    apply_filters,
    count_reasons,
    count_reasons_by,
    split_by_reason,
)
from posttrain.data.filters.base import Filter, FilterInputs, reasons_from
from posttrain.stage.errors import UserError

_FRAME = pl.DataFrame({"id": ["a", "b", "c"], "size": [1, 2, 3]})


class _Below(Filter):
    kind: str = "below"
    least: int
    reason: str

    def reasons(self, frame, inputs):
        small = pl.col("size") < self.least
        return reasons_from(frame, pl.when(small).then(pl.lit(self.reason)))


def _below(least: int, reason: str) -> Filter:
    return _Below(least=least, reason=reason)


def test_a_row_stays_as_it_was_or_goes_with_the_reason():
    judgments = pl.DataFrame({"reason": ["", "bad", ""], "match": ["", "a", ""]})
    kept, dropped = split_by_reason(_FRAME, judgments)
    assert kept.equals(_FRAME[[0, 2]])
    assert dropped.rows(named=True) == [{"id": "b", "size": 2, "reason": "bad", "match": "a"}]


def test_the_reason_for_dropping_takes_the_place_of_a_verdict():
    frame = _FRAME.with_columns(pl.lit("correct").alias("reason"))
    kept, dropped = split_by_reason(frame, _below(2, "small").reasons(frame, FilterInputs()))
    assert kept["reason"].to_list() == ["correct", "correct"]
    assert dropped["reason"].to_list() == ["small"]


def test_a_reason_is_needed_for_every_row():
    with pytest.raises(ValueError, match="2 reasons for 3 rows"):
        split_by_reason(_FRAME, pl.DataFrame({"reason": ["", ""], "match": ["", ""]}))


def test_the_first_filter_that_objects_gives_the_reason():
    filters = [_below(2, "tiny"), _below(3, "small")]
    kept, dropped = apply_filters(_FRAME, filters, FilterInputs())
    assert kept["id"].to_list() == ["c"]
    assert dropped.select("id", "reason").rows() == [("a", "tiny"), ("b", "small")]


@pytest.mark.parametrize("filters", [[_below(0, "small")], []])
def test_nothing_dropped_is_an_empty_table_with_all_columns(filters):
    _, dropped = apply_filters(_FRAME, filters, FilterInputs())
    assert dropped.schema == pl.Schema(
        {"id": pl.String, "size": pl.Int64, "reason": pl.String, "match": pl.String}
    )
    assert len(dropped) == 0


_KEPT = pl.DataFrame({"source": ["x", "y", "x"], "difficulty": [9, 10, 9]})
_DROPPED = pl.DataFrame(
    {"source": ["x", "z", "z"], "difficulty": [10, 2, 2], "reason": ["long", "twin", "twin"]}
)


def test_rows_and_reasons_are_counted_most_frequent_first():
    counts = count_reasons(_KEPT, _DROPPED)
    assert counts == {"read": 6, "kept": 3, "dropped": {"twin": 2, "long": 1}}
    assert list(counts["dropped"]) == ["twin", "long"]


def test_groups_come_from_kept_and_dropped_rows_easiest_first():
    groups = count_reasons_by(_KEPT, _DROPPED, "bucket", pl.col("difficulty"))
    assert groups == [
        {"bucket": "2", "read": 2, "kept": 0, "dropped": {"twin": 2}},
        {"bucket": "9", "read": 2, "kept": 2, "dropped": {}},
        {"bucket": "10", "read": 2, "kept": 1, "dropped": {"long": 1}},
    ]


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        (None, "gave None"),
        (pl.DataFrame({"reason": ["", ""], "match": ["", ""]}), "gave 2 rows"),
        (pl.DataFrame({"why": ["", "", ""], "match": ["", "", ""]}), "gave the columns why, match"),
        (pl.DataFrame({"reason": [1, 2, 3], "match": ["", "", ""]}), "gave reason as Int64"),
        (pl.DataFrame({"reason": ["", None, ""], "match": ["", "", ""]}), "gave null as reason"),
    ],
)
def test_a_filter_that_gives_no_table_of_reasons_is_named(reasons, said):
    class Odd(Filter):
        kind: str = "odd"

        def reasons(self, frame, inputs):
            return reasons

    with pytest.raises(UserError, match=f"curate: filter.odd: `reasons` {said}; let it give a"):
        apply_filters(_FRAME, [Odd()], FilterInputs())
