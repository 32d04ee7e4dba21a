"""Prompts cut into batches that are drawn in different places, and put together again."""

from collections.abc import Sequence

from posttrain.learning.rollouts.engines.base import Prompt, Sample, SamplingParams


def cut(
    prompts: Sequence[Prompt], params: SamplingParams, *, batch_size: int, at_least: int = 1
) -> list[list[int]]:
    """Cut prompts into the batches that the torch engine forms.

    What is in a batch depends on the prompts alone, never on where it is drawn.

    Args:
        prompts: What to continue.
        params: How to draw; `num_samples` rows go to each prompt.
        batch_size: Most rows of a batch.
        at_least: Batches are smaller where there would be fewer than this.

    Returns:
        Indices into the prompts, batch by batch, short prompts first.

    """
    ordered = sorted(range(len(prompts)), key=lambda index: len(prompts[index].token_ids))
    per_piece = max(1, min(batch_size // params.num_samples, -(-len(prompts) // at_least)))
    return [ordered[at : at + per_piece] for at in range(0, len(ordered), per_piece)]


def in_order(
    pieces: Sequence[Sequence[int]], drawn: Sequence[Sequence[Sample]], params: SamplingParams
) -> list[Sample]:
    """Put the samples of all batches in the order of the prompts.

    Args:
        pieces: Indices of the prompts, batch by batch.
        drawn: Samples of each batch, those of a prompt adjacent.
        params: Says how many a prompt has.

    Returns:
        All samples, prompt by prompt.

    """
    found: dict[int, Sequence[Sample]] = {}
    for piece, samples in zip(pieces, drawn, strict=True):
        for place, index in enumerate(piece):
            begin = place * params.num_samples
            found[index] = samples[begin : begin + params.num_samples]
    return [sample for index in range(len(found)) for sample in found[index]]
