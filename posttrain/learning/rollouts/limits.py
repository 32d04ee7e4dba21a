"""How long an answer may get, and which prompts leave room for one."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.learning.models.record import (
    TAUGHT_QUANTILE,
    answer_lengths,
    answer_lengths_in,
    limit_for,
    share_over,
    tokens_needed,
)
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.rollouts.engines.base import Prompt
    from posttrain.learning.rollouts.sampling import MaxTokens

_MUCH = 0.1
"""Share of a source's answers from which it is said that a limit cuts them."""


def tokens_for(
    max_tokens: "MaxTokens", *models: "PreTrainedModel", note: Callable[[str], None]
) -> int:
    """Choose the limit for policies and say why; of a given one, say what it cuts.

    Args:
        max_tokens: As the recipe has it.
        *models: What samples: of several, the one that was taught the longest answers.
        note: Takes a sentence.

    Returns:
        Most tokens of an answer.

    """
    return _limit(max_tokens, [answer_lengths(model) for model in models], note)


def tokens_for_stored(max_tokens: "MaxTokens", *policies: Path, note: Callable[[str], None]) -> int:
    """Do the same for policies that are not loaded.

    Args:
        max_tokens: As the recipe has it.
        *policies: Folders of what samples.
        note: Takes a sentence.

    Returns:
        Most tokens of an answer.

    """
    return _limit(max_tokens, [answer_lengths_in(folder) for folder in policies], note)


def _limit(
    max_tokens: "MaxTokens",
    known: Sequence[Mapping[str, Sequence[int]]],
    note: Callable[[str], None],
) -> int:
    if max_tokens != "auto":
        told = [
            f"{share:.0%} of the answers of {source} that the policy was taught are longer than"
            f" max_tokens {max_tokens}; raise it, or set it to auto"
            for taught in known
            for source, share in shares_cut(taught, max_tokens).items()
        ]
        for sentence in dict.fromkeys(told):
            note(sentence)
        return max_tokens
    taught = max(known, key=limit_for)
    note(limit_told(taught))
    return limit_for(taught)


def limit_told(taught: Mapping[str, Sequence[int]]) -> str:
    """Say in a sentence what `auto` is, and why.

    Args:
        taught: Lengths of the answers that the policy was taught, as in `answer_lengths`.

    Returns:
        The sentence.

    """
    why = "as the policy does not say how long the answers were that it was taught"
    if taught:
        longest = max(taught, key=lambda source: tokens_needed(taught[source]))
        why = (
            f"as {TAUGHT_QUANTILE:.0%} of the answers that the policy was taught have at most"
            f" {tokens_needed(taught[longest])} tokens, those of {longest}"
        )
    return f"max_tokens auto is {limit_for(taught)}, {why}"


def refuse_cutting(
    max_tokens: "MaxTokens", model: "PreTrainedModel", *, most: float, where: str
) -> None:
    """Refuse a limit that would cut too many of the answers that a policy was taught.

    Args:
        max_tokens: As the recipe has it; `auto` cuts few.
        model: What samples.
        most: Largest share of the answers of a source.
        where: Name of the stage.

    Raises:
        UserError: A source has more that are longer.

    """
    if max_tokens == "auto":
        return
    for source, share in shares_cut(answer_lengths(model), max_tokens).items():
        if share > most:
            raise UserError(
                f"{where}: {share:.0%} of the answers of {source} that the policy was taught are"
                f" longer than max_tokens {max_tokens}, so that it would be cut off before it can"
                f" be right; raise {where}.max_tokens, set it to auto, or raise {where}.most_cut"
            )


def leaves_room(prompt: "Prompt", context_length: int) -> bool:
    """Tell whether anything can be written behind a prompt.

    Args:
        prompt: As tokens.
        context_length: Most tokens, prompt and completion together, that the policy can attend to.

    Returns:
        Whether there is room for one token.

    """
    return len(prompt.token_ids) < context_length


def tell_no_room(
    prompts: Sequence["Prompt"],
    context_length: int,
    *,
    of: str,
    then: str,
    note: Callable[[str], None],
) -> None:
    """Say how many prompts fill the context, where there are some.

    Args:
        prompts: All of them, as tokens.
        context_length: Most tokens, prompt and completion together, that the policy can attend to.
        of: Whose context it is, as the sentence names it.
        then: What becomes of them, the end of the sentence.
        note: Takes the sentence.

    """
    full = [prompt for prompt in prompts if not leaves_room(prompt, context_length)]
    if full:
        longest = max(len(prompt.token_ids) for prompt in full)
        note(
            f"{len(full)} of {len(prompts)} prompts leave no room for an answer in the"
            f" {context_length} tokens of the context of {of}, the longest has {longest}; {then}"
        )


def shares_cut(taught: Mapping[str, Sequence[int]], max_tokens: int) -> dict[str, float]:
    """Compute which share of the answers a limit would cut, where that is much.

    Args:
        taught: Quantiles of their lengths by source, as in `answer_lengths`.
        max_tokens: The limit.

    Returns:
        The share, at most what it is, by source.

    """
    shares = {source: share_over(quantiles, max_tokens) for source, quantiles in taught.items()}
    return {source: share for source, share in shares.items() if share >= _MUCH}
