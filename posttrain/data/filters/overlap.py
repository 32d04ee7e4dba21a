"""How problems overlap with those of the evaluation: whole prompts, and runs of words."""

import polars as pl

from posttrain.data.filters.base import KEEP
from posttrain.data.filters.ngrams import (
    Words,
    hash_words,
    skeleton,
    without_runs,
    word_ngrams,
)
from posttrain.data.filters.parallel import IN_PROCESS, Parallel
from posttrain.data.mixing import U64Array

SAME_PROMPT = "evaluation_prompt"
SHARED_NGRAM = "evaluation_ngram"
_NO_HITS = pl.DataFrame(schema={"row": pl.Int64, "shared": pl.String})


def evaluation_overlap(
    frame: pl.DataFrame,
    heldout: pl.DataFrame,
    *,
    ngram: int | None,
    boilerplate: int,
    parallel: Parallel = IN_PROCESS,
) -> pl.DataFrame:
    """Find problems that are, or nearly are, problems of the evaluation.

    "evaluation_prompt": equal but for case, white space and punctuation. "evaluation_ngram": they
    share a run of `ngram` words, numbers left out (GPT-3 used 13 words, arXiv:2005.14165 appendix
    C). Runs of half as many words that stand in more than `boilerplate` problems of both tables
    together are a template, and left out; what then has fewer than `ngram` words is compared as a
    whole, as everything is where `ngram` is None.

    Args:
        frame: Problems, with `prompt`.
        heldout: Evaluation problems, with `id` and `prompt`.
        ngram: Words in a row that may not be shared, or None.
        boilerplate: Problems in which a template's words stand.
        parallel: How the work is shared out.

    Returns:
        `reason` and `match` per row; `match` is the evaluation problem with the least id.

    """
    same = _same_prompt(frame, heldout, parallel)
    shared = _shared_ngram(frame, heldout, ngram, boilerplate, parallel) if ngram else _NO_HITS
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


def _same_prompt(frame: pl.DataFrame, heldout: pl.DataFrame, parallel: Parallel) -> pl.DataFrame:
    """Rows whose prompt is that of a held-out problem: (row, same)."""
    known = heldout.group_by(_KEY).agg(pl.col("id").min().alias("same"))
    prompts = frame["prompt"]
    parts = [prompts[rows] for rows in parallel.slices(len(prompts))]
    return _renumbered(parallel.each(_known_prompts, parts, known), parts)


def _known_prompts(prompts: pl.Series, known: pl.DataFrame) -> pl.DataFrame:
    """Those among some prompts whose key is known: (row, same)."""
    rows = prompts.to_frame().select(pl.int_range(pl.len()).alias("row"), _KEY)
    return rows.join(known, on="key").select("row", "same")


_KEY = skeleton(pl.col("prompt")).alias("key")


def _shared_ngram(
    frame: pl.DataFrame, heldout: pl.DataFrame, ngram: int, boilerplate: int, parallel: Parallel
) -> pl.DataFrame:
    """Rows that share an n-gram outside of templates with a held-out problem: (row, shared)."""
    asked, prompts = hash_words(heldout["prompt"]), frame["prompt"]
    parts = [prompts[rows] for rows in parallel.slices(len(prompts))]
    # Half a run in common is the least that a whole one needs: most rows end here.
    read = parallel.each(_read, parts, asked, ngram // 2)
    train = Words.on_end([words for words, _ in read])
    shared = _renumbered([runs for _, runs in read], parts)
    suspects = shared["row"].unique().sort()
    template = _template(shared, asked, ngram // 2, boilerplate)
    train = without_runs(train.take(suspects.to_numpy()), ngram // 2, template)
    asked = without_runs(asked, ngram // 2, template)
    ids = heldout.select(pl.int_range(pl.len()).alias("row"), "id")
    grams = word_ngrams(asked, ngram, whole_if_short=False).frame()
    known = grams.join(ids, on="row").group_by("gram").agg(pl.col("id").min())
    hits = word_ngrams(train, ngram, whole_if_short=False).frame().join(known, on="gram")
    least = hits.group_by("row").agg(pl.col("id").min().alias("shared"))
    return least.with_columns(suspects.gather(least["row"]).alias("row"))


def _read(prompts: pl.Series, asked: Words, size: int) -> tuple[Words, pl.DataFrame]:
    """The words of some prompts, and the runs of `size` of them that stand in `asked` too."""
    train = hash_words(prompts)
    return train, _runs_of(train, asked, size)


def _renumbered(found: list[pl.DataFrame], parts: list[pl.Series]) -> pl.DataFrame:
    """What was found in every part, its rows counted from the first of all parts."""
    offset, frames = 0, []
    for frame, part in zip(found, parts, strict=True):
        frames.append(frame.with_columns(pl.col("row") + offset))
        offset += len(part)
    return pl.concat(frames)


def _runs_of(train: Words, asked: Words, size: int) -> pl.DataFrame:
    """The runs of `size` words in `train` that stand in `asked` too: (row, gram)."""
    known = word_ngrams(asked, size, whole_if_short=False).frame()["gram"]
    return word_ngrams(train, size, whole_if_short=False).frame(grams=known)


def _template(shared: pl.DataFrame, asked: Words, size: int, boilerplate: int) -> U64Array:
    """The runs of `asked` that stand in more than `boilerplate` problems of both tables."""
    own = word_ngrams(asked, size, whole_if_short=False).frame()
    problems = pl.concat([shared.select("gram"), own.select("gram")]).group_by("gram").len()
    return problems.filter(pl.col("len") > boilerplate)["gram"].to_numpy()
