"""Find passages by their words: BM25 over texts that are given, by bm25s."""

import re
from functools import lru_cache
from typing import Any

from posttrain.stage.errors import UserError
from posttrain.stage.extras import extra_line

# Of the texts that are searched in turns, as those of all problems of a step.
_INDEXES_KEPT = 512


def words_of(text: str) -> list[str]:
    """Split a text into what is compared: words and numbers, in lower case.

    >>> words_of("Who wrote no. 7?")
    ['who', 'wrote', 'no', '7']

    Args:
        text: Of a passage or a query.

    Returns:
        Its words, in order.

    """
    return re.findall(r"\w+", text.lower())


def best_passages(texts: tuple[str, ...], query: str, most: int) -> list[int]:
    """Rank passages for a query, if bm25s is installed.

    Args:
        texts: All passages; their index is kept, so that equal texts are indexed once.
        query: What is looked for; words that no passage has count nothing.
        most: How many to give.

    Returns:
        Places of the passages that share a word with the query, the best first; of equally good
        ones the earlier first.

    """
    index, known = _index_of(texts)
    wanted = [word for word in words_of(query) if word in known]
    if not wanted:
        return []
    scores = index.get_scores(wanted).tolist()
    found = [place for place, score in enumerate(scores) if score > 0.0]
    return sorted(found, key=lambda place: (-scores[place], place))[:most]


@lru_cache(maxsize=_INDEXES_KEPT)
def _index_of(texts: tuple[str, ...]) -> tuple[Any, frozenset[str]]:
    try:
        from bm25s import BM25
    except ModuleNotFoundError:
        raise UserError(
            "to search passages bm25s is needed, which is not installed; run:"
            f" {extra_line('search')}"
        ) from None
    split = [words_of(text) for text in texts]
    known = frozenset(word for words in split for word in words)
    index = BM25()
    if known:
        # It fails on texts without any word.
        index.index(split, show_progress=False)
    return index, known
