"""Texts as words, symbols and hashed word n-grams, all columns at once.

Words carry the evidence that two texts are alike; symbols (numbers, operators, brackets) decide
whether two problems are the same one: `4 - 1 - 7` and `4 - 1 - 8` differ in one token of fifteen.
Hashes come from SHA-256 and 64-bit arithmetic, so they are the same on every machine and version.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from posttrain.data.mixing import U64Array, splitmix64
from posttrain.stage.hashing import sha256_of

_WORD = r"[\p{L}\p{M}]+"
_SYMBOL = r"""\d+(?:[.,]\d+)*|[^\p{L}\p{M}\s\d.,;:!?'"“”‘’`]"""
_BASE = np.uint64(0x9E3779B97F4A7C15)


def folded(text: pl.Expr) -> pl.Expr:
    """Lower case, compatibility forms unified."""
    return text.str.normalize("NFKC").str.to_lowercase()


def words(text: pl.Expr) -> pl.Expr:
    """Runs of letters, folded, as a list; an apostrophe parts a word."""
    return folded(text).str.extract_all(_WORD)


def symbols(text: pl.Expr) -> pl.Expr:
    """Numbers without thousands separators, operators and brackets in order, as one string."""
    return _plain(text).str.extract_all(_SYMBOL).list.join(" ")


def skeleton(text: pl.Expr) -> pl.Expr:
    """What is left of a text without case, white space and punctuation marks, as one string."""
    return _plain(text).str.extract_all(f"{_WORD}|{_SYMBOL}").list.join(" ")


@dataclass(frozen=True)
class Words:
    """Hashed words of many texts on end: text i owns the next `lengths[i]` of `hashes`."""

    hashes: U64Array
    lengths: npt.NDArray[np.int64]

    @classmethod
    def on_end(cls, parts: Sequence["Words"]) -> "Words":
        """The texts of several parts, one part after the other."""
        hashes, lengths = [part.hashes for part in parts], [part.lengths for part in parts]
        return cls(np.concatenate(hashes), np.concatenate(lengths))

    def take(self, rows: npt.NDArray[np.int64]) -> "Words":
        """Some of the texts, in the order asked for."""
        lengths = self.lengths[rows]
        return Words(self.hashes[_positions(_starts(self.lengths)[rows], lengths)], lengths)


@dataclass(frozen=True)
class NGrams:
    """Hashed n-grams of many texts: text `rows[i]` contains the n-gram `hashes[i]`; rows ascend."""

    rows: npt.NDArray[np.int64]
    hashes: U64Array

    @classmethod
    def on_end(cls, parts: Sequence["NGrams"], num_texts: Sequence[int]) -> "NGrams":
        """The n-grams of several parts of so many texts each, one part after the other."""
        offsets = np.cumsum([0, *num_texts[:-1]])
        rows = [part.rows + offset for part, offset in zip(parts, offsets, strict=True)]
        return cls(np.concatenate(rows), np.concatenate([part.hashes for part in parts]))

    def frame(
        self, *, rows: pl.Series | None = None, grams: pl.Series | None = None
    ) -> pl.DataFrame:
        """The distinct (row, gram) pairs, only those of `rows` and among `grams` where given."""
        pairs = pl.DataFrame({"row": self.rows, "gram": self.hashes})
        for name, wanted in (("row", rows), ("gram", grams)):
            if wanted is not None:
                pairs = pairs.join(wanted.unique().alias(name).to_frame(), on=name, how="semi")
        return pairs.unique()


def hash_words(texts: pl.Series) -> Words:
    """Hash every word of every text; a text may have none."""
    tokens = texts.to_frame("text").select(words(pl.col("text")))["text"]
    lengths = tokens.list.len().to_numpy().astype(np.int64)
    return Words(text_hashes(tokens.explode(empty_as_null=False)), lengths)


def word_ngrams(text: Words, size: int, *, whole_if_short: bool) -> NGrams:
    """Hash every run of `size` words of every text.

    A text of fewer words has no n-gram, or with `whole_if_short` one of all its words (also of no
    word at all, so that every text has at least one). Cost is linear in the number of words.
    """
    # Zeros behind each text let a window run past its end without reading the next text.
    starts = _starts(text.lengths + size)
    padded = np.zeros(int((text.lengths + size).sum()), dtype=np.uint64)
    padded[_positions(starts, text.lengths)] = text.hashes
    counts = np.maximum(text.lengths - size + 1, 1 if whole_if_short else 0)
    windows = _positions(starts, counts)
    return NGrams(np.repeat(np.arange(len(counts)), counts), _roll(padded, windows, size))


def without_runs(text: Words, size: int, runs: U64Array) -> Words:
    """Take out every word that stands in one of `runs`, hashed n-grams of `size` words."""
    grams = word_ngrams(text, size, whole_if_short=False)
    counts = np.maximum(text.lengths - size + 1, 0)
    first = _positions(_starts(text.lengths), counts)[np.isin(grams.hashes, runs)]
    borders = np.zeros(len(text.hashes) + 1, dtype=np.int64)
    borders[first] += 1
    borders[first + size] -= 1
    stays = np.cumsum(borders[:-1]) == 0
    rows = np.repeat(np.arange(len(text.lengths)), text.lengths)
    return Words(text.hashes[stays], np.bincount(rows[stays], minlength=len(text.lengths)))


def text_hashes(texts: pl.Series) -> U64Array:
    """A 64-bit hash of each text, the same everywhere; each distinct text is hashed once."""
    if not len(texts):
        return np.zeros(0, dtype=np.uint64)
    distinct = texts.unique(maintain_order=True)
    hashes = pl.Series([int(sha256_of(text)[:16], 16) for text in distinct], dtype=pl.UInt64)
    return texts.replace_strict(distinct, hashes, return_dtype=pl.UInt64).to_numpy()


def _plain(text: pl.Expr) -> pl.Expr:
    """Folded text, with 1,234,567 written as 1234567."""
    separator = r"(\d),(\d{3})\b"
    # Once for every second separator: a match uses up the digit that the next one would start with.
    return folded(text).str.replace_all(separator, "$1$2").str.replace_all(separator, "$1$2")


def _starts(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where each of the pieces begins that lie on end."""
    ends: npt.NDArray[np.int64] = np.cumsum(lengths)
    return ends - lengths


def _positions(
    starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """`counts[i]` consecutive positions from `starts[i]` on, for all i on end."""
    shifts: npt.NDArray[np.int64] = np.repeat(starts - _starts(counts), counts)
    return np.arange(len(shifts)) + shifts


def _roll(padded: U64Array, windows: npt.NDArray[np.int64], size: int) -> U64Array:
    """Polynomial hash of `size` values from each window's start, modulo 2^64, then mixed."""
    total = np.zeros(len(windows), dtype=np.uint64)
    for offset in range(size):
        total = total * _BASE + padded[windows + offset]
    return splitmix64(total)
