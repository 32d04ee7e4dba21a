"""Forward passes of a policy that may not draw every token: it is renormalized over the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from posttrain.learning.models.load import Policy
from posttrain.learning.models.logprobs import CHUNK_ELEMENTS, TokenStatistics
from posttrain.learning.models.next_token import head_logits, states_before
from posttrain.learning.rl.action_masks.base import TokenMask
from posttrain.learning.rl.batch import TokenValues, TrainBatch, TrainSample
from posttrain.learning.rl.passes import ModelPasses
from posttrain.stage.started import started

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.rl.config import RlConfig


@dataclass
class MaskedPasses(ModelPasses):
    """Passes under a mask: the policy's are of the renormalized one, all others as they are."""

    def policy(
        self,
        model: "PreTrainedModel",
        input_ids_BT: Tensor,
        mask_BT: Tensor,
        *,
        with_entropy: bool = False,
        with_distribution: bool = False,
    ) -> TokenStatistics:
        """Compute the log-probabilities of the drawn tokens, of the policy renormalized.

        Args:
            model: The policy, or another model, whose are as they are.
            input_ids_BT: Prompts and completions.
            mask_BT: True at the drawn tokens.
            with_entropy: True for the entropy of each distribution, too.
            with_distribution: Not of a policy under a mask.

        Returns:
            In nats, at the temperature that the tokens were drawn with.

        """
        if model is not self.trainable.model:
            return super().policy(model, input_ids_BT, mask_BT, with_entropy=with_entropy)
        assert not with_distribution
        assert self.mask is not None
        temperature = self.config.temperature
        allowed = self.mask.at(input_ids_BT, mask_BT, temperature)
        with self.trainable.computing():
            states_ND = states_before(model, input_ids_BT, wanted_BT=mask_BT)
        found = renormalized(
            states_ND,
            input_ids_BT[mask_BT],
            logits_of=lambda states_ND: head_logits(model, states_ND) / temperature,
            allowed=allowed,
            # Two models' logits exist at a time.
            rows=max(1, CHUNK_ELEMENTS // (2 * model.config.get_text_config().vocab_size)),
        )
        zeros_BT = found.logprobs_N.new_zeros(mask_BT.shape)
        entropy_BT = zeros_BT.masked_scatter(mask_BT, found.entropy_N) if with_entropy else None
        return TokenStatistics(zeros_BT.masked_scatter(mask_BT, found.logprobs_N), entropy_BT, None)


class Renormalized(NamedTuple):
    """What tokens are under a mask, one entry each."""

    logprobs_N: Tensor
    """In nats, with gradient."""
    entropy_N: Tensor
    """Of the renormalized distribution, in nats, without gradient."""


def renormalized(
    states_ND: Tensor,
    targets_N: Tensor,
    *,
    logits_of: Callable[[Tensor], Tensor],
    allowed: Callable[[int, int], Tensor],
    rows: int,
) -> Renormalized:
    """Compute ``log(p(a) / p(allowed))`` of tokens, a slice of their logits at a time.

    What was drawn was allowed when it was, so that it counts as that here: a token at the very
    border of a set may fall out where other rows are computed beside it.

    Args:
        states_ND: Last hidden states, with gradient.
        targets_N: The tokens that were drawn.
        logits_of: The policy's logits of some states, `[n, V]`.
        allowed: Which tokens may stand at some places; see `TokenMask.at`.
        rows: Tokens whose logits exist at a time.

    Returns:
        Log-probabilities and entropies.

    """

    def part(begin: int, states_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        allowed_NV = allowed(begin, begin + len(targets_N))
        allowed_NV = allowed_NV.scatter(-1, targets_N[:, None], value=True)
        logits_NV = logits_of(states_ND).masked_fill(~allowed_NV, -torch.inf)
        with torch.no_grad():
            all_NV = logits_NV.log_softmax(-1)
            entropy_N = -(all_NV.exp() * all_NV).where(allowed_NV, 0.0).sum(-1)
        return -F.cross_entropy(logits_NV, targets_N, reduction="none"), entropy_N

    if len(targets_N) <= rows:
        return Renormalized(*part(0, states_ND, targets_N))
    starts = range(0, len(targets_N), rows)
    slices = zip(starts, torch.split(states_ND, rows), torch.split(targets_N, rows), strict=True)
    found = [
        checkpoint(part, *each, use_reentrant=False, preserve_rng_state=False) for each in slices
    ]
    return Renormalized(*map(torch.cat, zip(*found, strict=True)))


def start_mask(policy: Policy, config: "RlConfig") -> TokenMask | None:
    """Start the mask that a run asks for.

    Args:
        policy: As it is before the first step.
        config: Of the run.

    Returns:
        The mask; None where every token may be drawn.

    """
    part = config.draw.mask
    if part is None:
        return None
    return started(part, part.start(policy), TokenMask, where="rl")


def passes_under(mask: TokenMask | None) -> Callable[..., ModelPasses]:
    """What makes the passes of a run: plain ones, or those under a mask."""
    return ModelPasses if mask is None else partial(MaskedPasses, mask=mask)


def unmasked_columns(
    passes: ModelPasses, samples: Sequence[TrainSample]
) -> dict[str, list[TokenValues]]:
    """Compute what a divergence in the reward is of, where that is not what the engine drew by.

    NLPO pays for the divergence of the policy itself, not of the renormalized one (arXiv
    2210.01241, equation 1; allenai/RL4LMs, rl4lms/envs/text_generation/alg_wrappers.py).

    Args:
        passes: Of the run.
        samples: All of a step.

    Returns:
        A column of `rollout_batch` by its name; none without a mask.

    """
    if passes.mask is None:
        return {}

    def unmasked(batch: TrainBatch) -> Tensor:
        model = passes.trainable.model
        with torch.no_grad():
            return ModelPasses.policy(passes, model, batch.input_ids_BT, batch.mask_BT).logprobs_BT

    return {"sampled_logprobs": passes.rows(samples, unmasked)}
