"""Rows of which some tokens are masked, and the tokens that they hide.

A draw of the evidence lower bound of an answer of L tokens masks x of them and has
``L / x * sum log p(hidden token | what is left)``, an unbiased estimate where x is uniform over 1
to L (LLaDA, arXiv 2502.09992, appendix B.5, equation 14). Of a row that ends with the hidden
tokens that is L times the mean of their log-probabilities.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple


class NoisedRow(NamedTuple):
    """A prompt and an answer with masks in it, then the tokens that these hide, in their order."""

    token_ids: tuple[int, ...]
    num_hidden: int


def masked_counts(length: int, draws: int, chance: Random) -> list[int]:
    """Choose how many tokens each draw masks, spread evenly over 1 to `length`.

    Args:
        length: Tokens of the answer.
        draws: Number of draws.
        chance: Chooses where the even spacing begins.

    Returns:
        A number for each draw, each by itself uniform over 1 to `length`.

    """
    begin = chance.randrange(length)
    # Rounded down, as half numbers that round to even ones would leave out every other count.
    return [(begin + at * length // draws) % length + 1 for at in range(draws)]


def noised_rows(
    prompt: Sequence[int], answer: Sequence[int], *, mask: int, draws: int, chance: Random
) -> list[NoisedRow]:
    """Mask an answer several times.

    Args:
        prompt: Token ids, never masked.
        answer: Token ids.
        mask: Id of the mask token.
        draws: Number of rows.
        chance: Draws how many tokens are masked, and which.

    Returns:
        A row for each draw.

    """
    rows = []
    for count in masked_counts(len(answer), draws, chance):
        places = sorted(chance.sample(range(len(answer)), count))
        shown = list(answer)
        for place in places:
            shown[place] = mask
        hidden = (answer[place] for place in places)
        rows.append(NoisedRow((*prompt, *shown, *hidden), count))
    return rows


def filled_up(answer: Sequence[int], *, canvas: int, end: int) -> tuple[int, ...]:
    """Fill an answer up with end tokens, which a mask predictor learns like the others.

    Args:
        answer: Token ids, at most `canvas`.
        canvas: Tokens of every answer.
        end: Id of the end token.

    Returns:
        `canvas` token ids.

    """
    return (*answer, *[end] * (canvas - len(answer)))
