"""The plain policy gradient."""

from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.algorithms.batches import PolicyBatch, TokenLoss
from posttrain.learning.algorithms.surrogates.base import Surrogate, nothing_clipped

if TYPE_CHECKING:
    from torch import Tensor


class ReinforceSurrogate(Surrogate):
    """`-A log p`: no ratio at all, right for rollouts of the current policy."""

    SOURCE = "Williams 1992; for groups Kool et al. 2019"
    HAS_RATIO: ClassVar[bool] = False

    kind: Literal["reinforce"] = "reinforce"
    """The plain policy gradient."""

    def token_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> TokenLoss:
        """Weigh log-probabilities by advantages; see `Surrogate.token_loss`."""
        return nothing_clipped(-batch.advantages_BT * logprobs_BT)
