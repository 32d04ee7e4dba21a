"""Rows that others than the policy wrote, among those that a step learns from."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor


def foreign_of(rows: Sequence[Any], *, device: str = "cpu") -> Tensor | None:
    """Tell which rows others wrote.

    Args:
        rows: Rollouts or samples; `foreign` says it of each.
        device: Where the tensor goes.

    Returns:
        True or false for each, ``[B]``; None where the policy wrote all.

    """
    if not any(row.foreign for row in rows):
        return None
    return torch.tensor([row.foreign for row in rows], device=device)


def with_foreign_logprobs(
    samples: Sequence[Any], logprobs_of: Callable[[Sequence[Any]], Sequence[tuple[float, ...]]]
) -> list[Any]:
    """Let the policy as it is say what it makes of tokens that others wrote.

    Args:
        samples: Of a step, before its first update.
        logprobs_of: Asks the policy.

    Returns:
        The samples; what the policy drew is as the engine had it.

    """
    asked = [sample for sample in samples if sample.foreign]
    found = iter(logprobs_of(asked) if asked else ())
    return [replace(each, logprobs=next(found)) if each.foreign else each for each in samples]
