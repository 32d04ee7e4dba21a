"""Problems for training that are, or nearly are, problems of the evaluation."""

import polars as pl

from posttrain.data.ngrams import Words, hash_words, skeleton, without_runs, word_ngrams
from posttrain.data.sieve import KEEP

SAME_PROMPT = "evaluation_prompt"
SHARED_NGRAM = "evaluation_ngram"
_NO_HITS = pl.DataFrame(schema={"row": pl.Int64, "shared": pl.String})


def contamination(
    frame: pl.DataFrame, heldout: pl.DataFrame, *, ngram: int | None, boilerplate: int
) -> pl.DataFrame:
    """Judge problems against `heldout`; `match` is the evaluation problem with the least id.

    "evaluation_prompt": equal but for case, white space and punctuation. "evaluation_ngram": they
    share a run of `ngram` words, numbers left out, so that a problem with other numbers counts as
    the same (GPT-3 used 13 words, arXiv:2005.14165 appendix C). Words of a run half as long that
    stands in more than `boilerplate` problems of both tables together are a template, and left
    out; what then has fewer than `ngram` words is judged by equality alone, as everything is where
    `ngram` is None.
    """
    same = _same_prompt(frame, heldout)
    shared = _shared_ngram(frame, heldout, ngram, boilerplate) if ngram else _NO_HITS
    matches = frame.select(pl.int_range(pl.len()).alias("row"))
    matches = matches.join(same, on="row", how="left", maintain_order="left")
    matches = matches.join(shared, on="row", how="left", maintain_order="left")
    reason = (
        pl.when(pl.col("same").is_not_null())
        .then(pl.lit(SAME_PROMPT))
        .when(pl.col("shared").is_not_null())
        .then(pl.lit(SHARED_NGRAM))
        .otherwise(pl.lit(KEEP))
    )
    match = pl.coalesce("same", "shared", pl.lit(""))
    return matches.select(reason.alias("reason"), match.alias("match"))


def _same_prompt(frame: pl.DataFrame, heldout: pl.DataFrame) -> pl.DataFrame:
    """Rows whose prompt is that of a held-out problem: (row, same)."""
    key = skeleton(pl.col("prompt")).alias("key")
    known = heldout.group_by(key).agg(pl.col("id").min().alias("same"))
    rows = frame.select(pl.int_range(pl.len()).alias("row"), key)
    return rows.join(known, on="key").select("row", "same")


def _shared_ngram(
    frame: pl.DataFrame, heldout: pl.DataFrame, ngram: int, boilerplate: int
) -> pl.DataFrame:
    """Rows that share an n-gram outside of templates with a held-out problem: (row, shared)."""
    train, asked = _outside_templates(
        hash_words(frame["prompt"]), hash_words(heldout["prompt"]), ngram // 2, boilerplate
    )
    ids = heldout.select(pl.int_range(pl.len()).alias("row"), "id")
    grams = word_ngrams(asked, ngram, whole_if_short=False).frame()
    known = grams.join(ids, on="row").group_by("gram").agg(pl.col("id").min())
    hits = word_ngrams(train, ngram, whole_if_short=False).frame().join(known, on="gram")
    return hits.group_by("row").agg(pl.col("id").min().alias("shared"))


def _outside_templates(
    train: Words, asked: Words, size: int, boilerplate: int
) -> tuple[Words, Words]:
    """Both tables without the words of runs that more than `boilerplate` problems share."""
    runs = [word_ngrams(text, size, whole_if_short=False).frame() for text in (train, asked)]
    common = pl.concat([run.select("gram") for run in runs]).group_by("gram").len("problems")
    template = common.filter(pl.col("problems") > boilerplate)["gram"].to_numpy()
    return without_runs(train, size, template), without_runs(asked, size, template)
