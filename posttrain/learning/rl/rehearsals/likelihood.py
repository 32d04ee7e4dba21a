"""The likelihood of answers that were written before: fine-tuning as a term of RL."""

from typing import TYPE_CHECKING, Literal

from posttrain.learning.rl.rehearsals.base import Rehearsal

if TYPE_CHECKING:
    from torch import Tensor


class Likelihood(Rehearsal):
    """Learn the rows of a table by `-log p`, in every update of RL."""

    SOURCE = "the SFT term beside PPO: InstructGPT's PPO-ptx, arXiv 2203.02155, equation 2"

    kind: Literal["likelihood"] = "likelihood"
    """As fine-tuning does it, on some rows an update."""

    def token_loss(self, logprobs_BT: "Tensor", begun_BT: "Tensor") -> "Tensor":  # noqa: ARG002
        """Give `-log p`; see `Rehearsal.token_loss`."""
        return -logprobs_BT
