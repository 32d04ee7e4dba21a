"""The tensors that the parts of an algorithm are given and give back; none has a gradient.

`_BT` is one entry per rollout and token. Tokens are those of the completion alone, or of prompt and
completion: the mask says which of them the policy drew.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@dataclass(frozen=True)
class RolloutBatch:
    """What a whole generation of rollouts earned; only the first two are always needed."""

    rewards_B: "Tensor"
    """One reward per rollout, less what `token_rewards_BT` pays of it."""
    group_B: "Tensor"
    """Equal ids are rollouts of one problem."""
    mask_BT: "Tensor | None" = None
    """The tokens that the policy drew; for whatever goes by tokens, and for length."""
    truncated_B: "Tensor | None" = None
    """True where a rollout was cut off at the limit of tokens."""
    scored_B: "Tensor | None" = None
    """False where nothing could score the rollout: it gets 0 and enters no statistic."""
    sampled_logprobs_BT: "Tensor | None" = None
    """Of the engine; for a divergence in the reward."""
    reference_logprobs_BT: "Tensor | None" = None
    """Of the reference policy; for a divergence in the reward."""
    values_BT: "Tensor | None" = None
    """Of the critic, before each token."""
    entropy_BT: "Tensor | None" = None
    """Of the policy before the first update, in nats."""
    turn_BT: "Tensor | None" = None
    """Turn of each token, from 0; negative at tokens of no turn."""
    turn_rewards_BK: "Tensor | None" = None
    """Reward of each turn."""
    state_BK: "Tensor | None" = None
    """Id of the state that a turn starts from."""
    turn_advantages_BT: "Tensor | None" = None
    """Of each turn at its tokens, by values that are learned from stored episodes."""
    rewards_BC: "Tensor | None" = None
    """Scores of the components whose advantages are taken apart; for a reward that asks for it."""
    foreign_B: "Tensor | None" = None
    """True for rollouts that others than the policy wrote; none where it drew them all."""
    token_ids_BT: "Tensor | None" = None
    """Ids of the drawn tokens; with need `token_ids`."""
    weights_C: "Tensor | None" = None
    """Weight of each of these advantages in their sum."""
    token_rewards_BT: "Tensor | None" = None
    """What each drawn token is paid by itself; for a reward with components of scope token."""
    earlier_B: "Tensor | None" = None
    """How many drawn tokens, the first, are of earlier steps; with need `windows`."""
    unfinished_B: "Tensor | None" = None
    """True for rollouts that go on in a later step; with need `windows`."""


class TokenCost(NamedTuple):
    """What is taken off the rewards: `coefficient x cost` at each drawn token.

    A regularizer's, or with a coefficient of -1 what the tokens themselves are paid.
    """

    coefficient: float
    cost_BT: "Tensor"


class Bearing(NamedTuple):
    """Which drawn tokens bear which loss, `[B, T]` each; at some neither, at some both."""

    policy_BT: "Tensor"
    critic_BT: "Tensor"


class TokenAdvantages(NamedTuple):
    """Advantages, and where there is a critic the targets of its values."""

    advantages_BT: "Tensor"
    """`[B, T]`, or `[B, 1]` where all tokens of a rollout share one."""
    returns_BT: "Tensor | None"
    bears_loss_B: "Tensor"
    """False for rollouts to leave out of mask and denominator: unscored, or cut off where the
    algorithm does not keep those. Their advantages are 0."""
    bearing: "Bearing | None" = None
    """Where tokens of one rollout differ in the losses that they bear; else all bear both."""


@dataclass(frozen=True, kw_only=True)
class PolicyBatch:
    """What is known of some rollouts before the policy is run on them."""

    mask_BT: "Tensor"
    """The tokens that the policy drew."""
    advantages_BT: "Tensor"
    """`[B, T]`, or `[B, 1]` where all tokens of a rollout share one."""
    sampled_logprobs_BT: "Tensor"
    """Of the policy and the engine that sampled."""
    old_logprobs_BT: "Tensor | None" = None
    """Of the trainer before the step's first update."""
    position_BT: "Tensor | float | None" = None
    """Where between engine (0) and current policy (1) the old one is; `[B, 1]`, or `[B, T]` where
    several policies drew a rollout."""
    reference_logprobs_BT: "Tensor | None" = None
    """Of the reference policy."""
    entropy_BT: "Tensor | None" = None
    """Of the current policy, in nats, without gradient."""
    vocabulary_ratio_BT: "Tensor | None" = None
    """Mean over the vocabulary of the log-ratio to the policy before the step, without gradient."""
    weights_BT: "Tensor | None" = None
    """Token weights that were fixed before the first update."""
    foreign_B: "Tensor | None" = None
    """True for rollouts that others than the policy wrote; none where it drew them all. Of these
    `sampled_logprobs_BT` are those of the policy before the step's first update."""
    author_logprobs_BT: "Tensor | None" = None
    """Of whoever wrote the tokens, which of the policy's own are `sampled_logprobs_BT`; 0 of an
    author that nobody knows, as of one that is sure. None where the policy wrote all."""
    log_all_NV: "Tensor | None" = None
    """Of the current policy, of the whole vocabulary at the N drawn tokens, in the mask's order,
    with gradient; with need `distribution`."""
    divergences_KBT: "Tensor | None" = None
    """What each of K regularizers made of the policy's whole distributions and the reference's at
    the drawn tokens, with gradient; with need `reference_divergence`."""
    divergence_BT: "Tensor | None" = None
    """For a regularizer: its own of `divergences_KBT`."""
    marks_KBT: "Tensor | None" = None
    """What each of K regularizers said of the tokens before the first update."""
    past_K2: "Tensor | None" = None
    """What each of K regularizers measured so far: in the first update, and the mean over all."""
    mark_BT: "Tensor | None" = None
    """For a regularizer: its own of `marks_KBT`."""
    past_2: "Tensor | None" = None
    """For a regularizer: its own of `past_K2`; None in the first update of a run."""
    group_B: "Tensor | None" = None
    """Equal ids are rollouts of one problem; with need `group_statistics` or `whole_groups`."""
    group_mean_B: "Tensor | None" = None
    """Mean reward of the rollout's whole group."""
    group_deviation_B: "Tensor | None" = None
    """Population deviation of the rewards of the rollout's whole group."""


class TokenLoss(NamedTuple):
    """A loss per token, and at which tokens a clip took hold."""

    loss_BT: "Tensor"
    clipped_BT: "Tensor"


def needed(tensor: "Tensor | None", name: str, what: str) -> "Tensor":
    """Return a tensor that a part cannot do without.

    Args:
        tensor: What the batch holds.
        name: Of the batch's field.
        what: The part that asks for it, for the message.

    Returns:
        The tensor itself.

    Raises:
        ValueError: It is None.

    """
    if tensor is None:
        raise ValueError(f"{what} needs {name}")
    return tensor


def multiplied(factors: "Sequence[Tensor]") -> "Tensor | None":
    """All factors multiplied, numbers or truth values; None where there is none."""
    total: Tensor | None = None
    for factor in factors:
        total = factor if total is None else total * factor
    return total
