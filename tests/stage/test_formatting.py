"""Figures as people write them, by hand."""

import math

import pytest

from posttrain.stage.formatting import bytesize, duration, number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.5, "0.5"),
        (1.5, "1.5"),
        (0.12345, "0.123"),
        (41.0, "41"),
        (123.456, "123.5"),
        (2088, "2,088"),
        (168_336, "168,336"),
        (123456.7, "1.23e5"),
        (0.0001, "1e-4"),
        (-0.00025, "-2.5e-4"),
        (math.nan, "n/a"),
        (math.inf, "n/a"),
    ],
)
def test_numbers_are_written_as_people_write_them(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.97, "10 s"),
        (119.7, "2 min 0 s"),
        (132.9, "2 min 13 s"),
        (5460, "1 h 31 min"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (485_904, "485.9 kB"),
        (1_049_000, "1 MB"),
        (7.25e9, "7.2 GB"),
        (3e13, "30 TB"),
    ],
)
def test_sizes_go_by_the_thousand(size, text):
    assert bytesize(size) == text
