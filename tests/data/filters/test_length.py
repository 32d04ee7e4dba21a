import polars as pl

from posttrain.data.filters.base import FilterInputs
from posttrain.data.filters.length import LengthFilter


def length(frame: pl.DataFrame, column: str, bounds: tuple[int, int]) -> pl.DataFrame:
    part = LengthFilter(column=column, least=bounds[0], most=bounds[1])
    return part.reasons(frame, FilterInputs())


def test_both_bounds_are_allowed_and_the_ends_are_stripped():
    texts = ["", "  \n", "abc", " abcd ", "abcdef", "abcdefg", "\u00e9\u00e9\u00e9\u00e9"]
    frame = pl.DataFrame({"text": texts})
    assert length(frame, "text", (4, 6))["reason"].to_list() == [
        "empty",
        "empty",
        "too_short",
        "",
        "",
        "too_long",
        "",
    ]


def test_an_empty_text_is_dropped_even_where_no_length_is_asked():
    assert length(pl.DataFrame({"text": ["", "a"]}), "text", (0, 9))["reason"].to_list() == [
        "empty",
        "",
    ]
