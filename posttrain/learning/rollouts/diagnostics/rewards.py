"""What a reward model makes of the samples of an evaluation."""

from typing import TYPE_CHECKING

from posttrain.learning.rollouts.diagnostics.samples import PolicySamples

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


def rewards_of(path: "Path", samples: PolicySamples, device: str) -> "Tensor":
    """Score every sample of a policy; equal texts of a problem are scored once.

    Args:
        path: The reward model.
        samples: `N` of each of `P` problems.
        device: Where it computes.

    Returns:
        Rewards in the model's own unit, float64 ``[P, N]``; an empty text ranks last.

    """
    import torch

    from posttrain.data.contexts import in_context
    from posttrain.learning.models.reward_head import load_reward_model

    model = load_reward_model(path, device=device)
    wanted = [
        (*prompt, text)
        for prompt, texts in zip(samples.prompts, samples.texts, strict=True)
        for text in sorted(set(texts) - {""})
    ]
    prompts = in_context([prompt for prompt, _, _ in wanted], [each for _, each, _ in wanted])
    known = dict(zip(wanted, model.score(prompts, [text for *_, text in wanted]), strict=True))
    rows = [
        [known.get((*prompt, text), float("-inf")) for text in texts]
        for prompt, texts in zip(samples.prompts, samples.texts, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64)
