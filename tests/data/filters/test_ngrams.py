import hashlib

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.data.filters.ngrams import (
    hash_words,
    skeleton,
    symbols,
    text_hashes,
    without_runs,
    word_ngrams,
    words,
)


def _apply(expression, text):
    return pl.DataFrame({"text": [text]}).select(expression(pl.col("text"))).item()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Sold 48 clips, half-price!", ["sold", "clips", "half", "price"]),
        ("\uff21pple's Stra\u00dfe", ["apple", "s", "stra\u00dfe"]),
        ("4 - 1", []),
        ("", []),
    ],
)
def test_words_are_runs_of_letters_in_lower_case(text, found):
    assert _apply(words, text).to_list() == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Calculate 4 - 1*7.", "4 - 1 * 7"),
        ("pays $1,234,567.50 (50% off)", "$ 1234567.50 ( 50 % )"),
        ("1, 2, 3", "1 2 3"),
        ("no numbers here, none: 'none'!", ""),
    ],
)
def test_symbols_are_numbers_and_operators_in_order(text, found):
    assert _apply(symbols, text) == found


def test_a_skeleton_forgets_case_spaces_and_punctuation_only():
    assert _apply(skeleton, 'Add 1,000  to "B", then\n- 2.') == "add 1000 to b then - 2"


def _grams(texts, size, *, whole_if_short=False):
    grams = word_ngrams(hash_words(pl.Series(texts)), size, whole_if_short=whole_if_short)
    return [grams.hashes[grams.rows == row].tolist() for row in range(len(texts))]


def test_equal_runs_of_words_have_equal_hashes_and_only_those():
    left, right = _grams(["a b c d", "x b c d"], 2)
    # a-b b-c c-d against x-b b-c c-d
    assert left[1:] == right[1:]
    assert left[0] != right[0]
    assert len({*left, *right}) == 4


def test_the_order_of_words_counts():
    left, right = _grams(["a b", "b a"], 2)
    assert left != right


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=6), min_size=1, max_size=5))
def test_n_grams_are_those_of_a_plain_loop(rows):
    found = _grams([" ".join(row) for row in rows], 3)
    slow = [[tuple(row[i : i + 3]) for i in range(len(row) - 2)] for row in rows]
    pairs = {
        (gram, number)
        for grams, numbers in zip(slow, found, strict=True)
        for gram, number in zip(grams, numbers, strict=True)
    }
    assert len(pairs) == len({gram for gram, _ in pairs}) == len({number for _, number in pairs})


def test_a_short_text_is_one_gram_of_its_own_if_asked():
    assert _grams(["a b", "a b c"], 3)[0] == []
    short, exact, empty = _grams(["a b", "a b c", "7"], 3, whole_if_short=True)
    assert len(short) == len(exact) == len(empty) == 1
    assert len({short[0], exact[0], empty[0]}) == 3


def test_no_texts_have_no_grams():
    grams = word_ngrams(hash_words(pl.Series([], dtype=pl.String)), 3, whole_if_short=True)
    assert len(grams.hashes) == 0


def test_words_in_a_common_run_are_taken_out_and_others_stay():
    text = hash_words(pl.Series(["say the sum of apples", "sum the say", "the sum of"]))
    template = word_ngrams(hash_words(pl.Series(["the sum of"])), 3, whole_if_short=False)
    rest = without_runs(text, 3, template.hashes)
    assert rest.lengths.tolist() == [2, 3, 0]
    kept = hash_words(pl.Series(["say apples", "sum the say"]))
    assert np.array_equal(rest.hashes, kept.hashes)


def test_overlapping_runs_take_out_their_union():
    text = hash_words(pl.Series(["x a b c d y"]))
    runs = word_ngrams(hash_words(pl.Series(["a b c", "b c d"])), 3, whole_if_short=False)
    rest = without_runs(text, 3, runs.hashes)
    assert np.array_equal(rest.hashes, hash_words(pl.Series(["x y"])).hashes)


def test_a_text_hash_is_the_head_of_its_sha256():
    expected = int.from_bytes(hashlib.sha256("\u00e9t\u00e9".encode()).digest()[:8], "big")
    assert text_hashes(pl.Series(["\u00e9t\u00e9", "a", "\u00e9t\u00e9"]))[[0, 2]].tolist() == [
        expected,
        expected,
    ]
