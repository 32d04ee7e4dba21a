"""What models say of the tokens of answers: each sequence of one is read by itself, as drawn."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posttrain.backends.endpoint.config import Endpoint
from posttrain.learning.models.load import Policy
from posttrain.learning.rewards import port_models
from posttrain.learning.rewards.components.base import Answers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def answers_logprobs(policy: Policy, groups: Sequence[Answers]) -> list[list[float]]:
    """Compute the log-probabilities of what was drawn in answers, each sequence by itself.

    Args:
        policy: Whose.
        groups: Answers, with their tokens.

    Returns:
        In nats, the drawn tokens of each answer in order, all groups behind each other.

    """
    ids, drawn, counts = _by_sequence(groups)
    rows = iter(port_models.drawn_logprobs(policy, ids, drawn))
    return [[value for _ in range(count) for value in next(rows)] for count in counts]


def served_logprobs(
    endpoint: Endpoint, tokenizer: "PreTrainedTokenizerBase | None", groups: Sequence[Answers]
) -> list[list[float]]:
    """Ask a served model for the log-probabilities of what was drawn, each sequence by itself.

    Args:
        endpoint: Where it answers; it must give `prompt_logprobs`.
        tokenizer: The policy's, which the server must share.
        groups: Answers, with their tokens.

    Returns:
        As `answers_logprobs` does, at temperature 1.

    Raises:
        UserError: It does not answer, or has another tokenizer.

    """
    from posttrain.backends.endpoint.client import open_client
    from posttrain.backends.endpoint.prompt_logprobs import prompt_logprobs
    from posttrain.learning.models.served_tokens import refuse_other_texts

    ids, drawn, counts = _by_sequence(groups)
    found: list[list[float]] = []
    for said, marks in zip(
        prompt_logprobs(open_client(endpoint), ids, top_k=1), drawn, strict=True
    ):
        learned = [each for each, mark in zip(said, marks, strict=True) if mark and each]
        if tokenizer is not None:
            for each in learned:
                refuse_other_texts(tokenizer, each.texts, where=endpoint.base_url)
        found.append([each.logprob for each in learned])
    rows = iter(found)
    return [[value for _ in range(count) for value in next(rows)] for count in counts]


def answers_states(
    policy: Policy,
    group: Answers,
    beside: Sequence[tuple[Sequence[int], Sequence[bool]]] = (),
) -> list[Tensor]:
    """Average the last hidden states over what was drawn in answers, each sequence by itself.

    Args:
        policy: Whose states.
        group: Answers, with their tokens.
        beside: Further tokens, with marks at those to average over.

    Returns:
        A vector for each answer, ``[D]``, and then for each of those beside.

    """
    ids, drawn, counts = _by_sequence([group])
    ids += [tuple(tokens) for tokens, _ in beside]
    drawn += [tuple(marks) for _, marks in beside]
    counts += [1] * len(beside)
    rows = iter(zip(port_models.mean_states(policy, ids, drawn), map(sum, drawn), strict=True))
    found = []
    for count in counts:
        parts = [next(rows) for _ in range(count)]
        total = max(sum(weight for _, weight in parts), 1)
        states = [mean_D * (weight / total) for mean_D, weight in parts]
        found.append(parts[0][0] if count == 1 else torch.stack(states).sum(0))
    return found


def _by_sequence(
    groups: Sequence[Answers],
) -> tuple[list[tuple[int, ...]], list[tuple[bool, ...]], list[int]]:
    """Tokens and marks of every sequence, and how many sequences each answer has."""
    ids, drawn, counts = [], [], []
    for group in groups:
        for place, (tokens, marks) in enumerate(zip(group.token_ids, group.drawn, strict=True)):
            cut = group.sequences(place)
            ids += [tokens[each.start : each.stop] for each in cut]
            drawn += [marks[each.start : each.stop] for each in cut]
            counts.append(len(cut))
    return ids, drawn, counts
