"""What a claim reads off the samples of a policy."""

import polars as pl

from tasks.verdict.samples import distinct_right


def test_distinct_right_counts_right_texts_once_and_problems_without_one():
    judged = pl.DataFrame(
        {
            "problem_id": ["a", "a", "a", "a", "b", "b"],
            "text": ["one way", "one way", "another", "wrong", "wrong", "wrong too"],
            "verified": [True, True, True, False, False, False],
        }
    )
    # Two ways of a, none of b.
    assert distinct_right(judged) == 1.0
