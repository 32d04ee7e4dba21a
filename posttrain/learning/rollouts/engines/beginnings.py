"""Drawing what comes next behind beginnings of answers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from posttrain.learning.rollouts.engines.base import (
    FinishReason,
    Prompt,
    RolloutEngine,
    Sample,
    SamplingParams,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class AnswerStart:
    """A prompt, and the tokens that its answer begins with."""

    id: str
    """Of the drawing, unique in a call: what is behind it is drawn by this name."""
    prompt: tuple[int, ...]
    tokens: tuple[int, ...] = ()


def drawn_behind(
    engine: RolloutEngine, beginnings: Sequence[AnswerStart], params: SamplingParams
) -> list[list[Sample]]:
    """Draw behind beginnings, each up to what is left of the most tokens of an answer.

    Args:
        engine: Draws.
        beginnings: What is written already.
        params: How to sample; its `max_tokens` are those of a whole answer.

    Returns:
        Samples of each beginning, which hold the new tokens alone.

    """
    found: dict[str, list[Sample]] = {each.id: [] for each in beginnings}
    # Beginnings of one length are drawn together, as a limit is one of a whole call.
    for length in sorted({len(each.tokens) for each in beginnings}):
        prompts = [
            Prompt(each.id, (*each.prompt, *each.tokens))
            for each in beginnings
            if len(each.tokens) == length
        ]
        limit = replace(params, max_tokens=params.max_tokens - length)
        for sample in engine.sample(prompts, limit):
            found[sample.prompt_id].append(sample)
    return [found[each.id] for each in beginnings]


def drawn_steps(
    engine: RolloutEngine,
    tokenizer: "PreTrainedTokenizerBase",
    beginnings: Sequence[AnswerStart],
    params: SamplingParams,
) -> list[list[tuple[Sample, bool]]]:
    """Draw next steps behind beginnings; a step is a line.

    Args:
        engine: Draws.
        tokenizer: Decodes what it drew.
        beginnings: What is written already.
        params: How to sample; its `num_samples` are steps of each, its `max_tokens` those of
            a whole answer.

    Returns:
        Steps of each beginning, as `step_ended` tells them.

    """
    lines = replace(params, stop=("\n", *params.stop))
    return [
        [
            step_ended(
                step,
                behind,
                tokenizer,
                max_tokens=params.max_tokens,
                context_length=engine.context_length,
            )
            for step in drawn
        ]
        for behind, drawn in zip(beginnings, drawn_behind(engine, beginnings, lines), strict=True)
    ]


def step_ended(
    step: Sample,
    behind: AnswerStart,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    max_tokens: int,
    context_length: int,
) -> tuple[Sample, bool]:
    """Say whether anything can follow a step, which is a line.

    Args:
        step: Drawn up to a line's end.
        behind: What it was drawn behind.
        tokenizer: Decodes it.
        max_tokens: Most tokens of a whole answer.
        context_length: Positions that the model knows.

    Returns:
        The step, cut off by length where only the room for more is missing, and whether the answer
        goes on behind it: it ends by a line's end, and there is room.

    """
    broken = "\n" in str(tokenizer.decode(step.token_ids))
    room = min(max_tokens, context_length - len(behind.prompt))
    fits = len(behind.tokens) + len(step.token_ids) < room
    if broken and not fits:
        step = replace(step, finish_reason=FinishReason.LENGTH)
    return step, broken and fits


def whole_text(
    tokenizer: "PreTrainedTokenizerBase", begun: Sequence[int], drawn: Sequence[int], text: str
) -> str:
    """Join what an answer begins with and what was drawn behind it.

    Args:
        tokenizer: Decodes them.
        begun: Tokens of the beginning.
        drawn: Tokens behind it.
        text: The same as text, without the token that ends it.

    Returns:
        One text, with the space between the two where the tokens have one.

    """
    if not begun:
        return text
    before, both = (
        str(tokenizer.decode(ids, skip_special_tokens=True)) for ids in (begun, (*begun, *drawn))
    )
    return both if both.startswith(before) and both.endswith(text) else before + text
