"""What every loss of supervised fine-tuning is: a part that gives each learned token its loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.data.soft_targets import SoftTargets
    from posttrain.learning.models.supports import OfSupport

ROW_LOSS_NEEDS: Mapping[str, str] = {
    "judgments": "whether each row is right: rows that could not be judged are left out",
    "mixed_prompts": "prompts with right rows and wrong ones: the rows of others are left out",
    "reference": "the log-probabilities of the policy that the stage starts from",
    "advantages": "scores less values of their prompts: rows that are not above are left out",
    "normalizers": "the log-sum-exp of the logits at each token",
    "targets": "what a teacher says of each token: a table of soft targets",
}
"""What a loss may ask for in its `NEEDS`, and what that is."""


@dataclass(frozen=True)
class LearnedTokens:
    """The tokens of a micro-batch that bear loss, row by row, an entry each ``[N]``."""

    logprobs_N: "Tensor"
    """By the policy, in nats, with gradient."""
    positives_N: "Tensor"
    """True in a row to imitate; all True unless the loss needs `judgments`."""
    solve_rates_N: "Tensor"
    """Share of right rows among the judged ones of the same prompt."""
    ends_N: "Tensor"
    """True at the last learned token of a row."""
    reference_N: "Tensor"
    """By the policy that the stage starts from, in nats; 0 unless the loss needs `reference`."""
    advantages_N: "Tensor"
    """Score of the row less the value of its prompt; 0 unless the loss needs `advantages`."""
    normalizers_N: "Tensor | None"
    """Log-sum-exp of the logits, with gradient; None unless the loss needs `normalizers`."""
    targets: "SoftTargets | None" = None
    """The teacher's likeliest tokens; None unless the loss needs `targets`."""
    support: "OfSupport | None" = None
    """What the policy says of these, with gradient; None unless the loss needs `targets`."""


class RowLoss(Part, Schedulable):
    """What the tokens of a row are learned by; derive from it and define `losses`.

    `NEEDS` names what it must be given, of `ROW_LOSS_NEEDS`. Its numbers may be schedules.
    """

    NEEDS: ClassVar[frozenset[str]] = frozenset()

    def losses(self, tokens: "LearnedTokens") -> "Tensor":
        """Compute the loss of every token.

        Args:
            tokens: The policy's log-probabilities, and what is known of the rows.

        Returns:
            ``[N]``, with gradient. A step minimizes their mean over its tokens, each weighted as
            its row is.

        """
        raise NotImplementedError
