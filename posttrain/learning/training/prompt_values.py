"""What a policy's own hidden states say that its answers to a prompt will score."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from posttrain.data.rows import RowFacts, TokenRow
from posttrain.learning.models.logprobs import hidden_states
from posttrain.learning.training.asking import ask
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.prepare import precision_of
from posttrain.learning.training.token_batches import heldout_batches
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.load import Policy

_RIDGE = 0.1
"""Of the squared weights, on features of deviation 1 and the mean over prompts."""


class PromptValues(NamedTuple):
    """Values of rows, and how good they are."""

    values: list[float]
    """Of each row's prompt."""
    explained: float
    """Share of the variance of the prompts' mean scores that they explain, each prompt by a head
    that never saw it; below 0 where a constant says more."""


def prompt_values(
    policy: "Policy", rows: Sequence[TokenRow], scores: Sequence[float], config: TrainingConfig
) -> PromptValues:
    """Fit a linear head on the frozen policy to the scores of rows, and ask it about their prompts.

    The head reads the last hidden state of a prompt's last token. There are two, each fitted by
    ridge regression to half of the prompts and asked about the other half, so that no prompt's
    value knows its own scores.

    Args:
        policy: As it is, which is the one that rows are held against.
        rows: Tokens, and where those begin that bear loss; the prompt is what stands before.
        scores: Of each row, in [0, 1].
        config: Tokens that go through the model at once, and the precision of that.

    Returns:
        The values, within [0, 1].

    """
    names = [row.ids[: row.start] for row in rows]
    places = {name: place for place, name in enumerate(dict.fromkeys(map(tuple, names)))}
    prompt_R = torch.tensor([places[tuple(name)] for name in names])
    count_P = torch.bincount(prompt_R, minlength=len(places)).double()
    total_P = torch.zeros(len(places), dtype=torch.float64)
    total_P = total_P.index_add(0, prompt_R, torch.tensor(scores, dtype=torch.float64))
    mean_P = total_P / count_P
    first = {int(prompt): row for row, prompt in reversed(list(enumerate(prompt_R.tolist())))}
    state_PD = _states(policy, [rows[first[place]] for place in range(len(places))], config)
    half_P = torch.arange(len(places)) % 2 == 0
    value_P = torch.full_like(mean_P, float(total_P.sum() / count_P.sum()))
    for told_P in (half_P, ~half_P):
        if told_P.any() and not told_P.all():
            value_P[~told_P] = _fitted(
                state_PD[told_P], mean_P[told_P], count_P[told_P], state_PD[~told_P]
            )
    value_P = value_P.clamp(0.0, 1.0)
    spread = (mean_P - mean_P.mean()).square().mean()
    missed = (mean_P - value_P).square().mean()
    explained = float(1 - missed / spread) if spread > 0 else 0.0
    return PromptValues(value_P[prompt_R].tolist(), explained)


def rows_above_values(
    policy: "Policy",
    rows: Sequence[TokenRow],
    facts: RowFacts,
    config: TrainingConfig,
    *,
    note: Callable[[str], None],
) -> tuple[list[int], RowFacts]:
    """Choose the rows that score above the values of their prompts.

    Args:
        policy: As it is.
        rows: All of them.
        facts: With their scores.
        config: Tokens that go through the model at once, and the precision of that.
        note: Is told how many they are, and how good the values.

    Returns:
        Their indices, and the facts of all rows with advantages.

    Raises:
        UserError: There is none.

    """
    found = prompt_values(policy, rows, facts.scores, config)
    advantages = [score - v for score, v in zip(facts.scores, found.values, strict=True)]
    # What is 0 but for rounding is not above.
    above = [place for place, each in enumerate(advantages) if each > 1e-6]
    note(
        f"{len(above)} of {len(rows)} rows score above the value of their prompt and are learned;"
        f" values explain {found.explained:.0%} of the variance of mean scores, of prompts that"
        " they were not fitted to"
    )
    if not above:
        raise UserError(
            f"{config.STAGE}: no row scores above the value of its prompt, so there is nothing to"
            " learn; take rows with other scores, or another loss"
        )
    return above, replace(facts, advantages=advantages)


@torch.no_grad()
def _states(policy: "Policy", rows: Sequence[TokenRow], config: TrainingConfig) -> Tensor:
    """The last hidden state of the token before each row's first that bears loss. ``[P, D]``."""
    policy.model.eval()
    batches = heldout_batches(policy, rows, config)

    def asked(model: "PreTrainedModel") -> dict[int, Tensor]:
        found: dict[int, Tensor] = {}
        for step, members in enumerate(batches.steps):
            batch = batches.micro_batches(step)[0].to(model.device)
            with precision_of(config.learner, model):
                hidden_BTD = hidden_states(model, batch.input_ids_BT)
            ends = [max(rows[index].start - 1, 0) for index in members]
            states_BD = hidden_BTD[torch.arange(len(ends)), ends].double().cpu()
            found |= zip(members, states_BD, strict=True)
        return found

    said = ask(policy.model, asked)
    return torch.stack([said[index] for index in range(len(rows))])


def _fitted(known_MD: Tensor, mean_M: Tensor, count_M: Tensor, asked_QD: Tensor) -> Tensor:
    """Ridge regression, each prompt as often as it has rows; its predictions. ``[Q]``."""
    weight_M1 = (count_M / count_M.sum()).unsqueeze(-1)
    center_D = (weight_M1 * known_MD).sum(0)
    spread_D = (weight_M1 * (known_MD - center_D).square()).sum(0).sqrt().clamp(min=1e-6)
    base = (weight_M1[:, 0] * mean_M).sum()
    features_MD = (known_MD - center_D) / spread_D
    square_DD = features_MD.T @ (weight_M1 * features_MD)
    square_DD += _RIDGE * torch.eye(len(square_DD), dtype=square_DD.dtype)
    slope_D = torch.linalg.solve(square_DD, features_MD.T @ (weight_M1[:, 0] * (mean_M - base)))
    said_Q: Tensor = (asked_QD - center_D) / spread_D @ slope_D + base
    return said_Q
