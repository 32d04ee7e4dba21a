"""Tokens that an earlier policy would hardly have said bear no loss."""

from math import log
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, needed
from posttrain.learning.algorithms.token_weights.base import TokenWeight

if TYPE_CHECKING:
    from torch import Tensor


class LikelyByReferenceWeight(TokenWeight):
    """1 at tokens to which the reference gives a probability of at least `least`, 0 at the others.

    With a reference that follows (`rl.reference: periodic`) it is a lagged policy's set of tokens
    that counts, cut as epsilon sampling cuts. It is no nucleus, which the probability of the drawn
    token alone does not tell: what is kept lies in every nucleus of a mass above `1 - least`, but
    such a nucleus may have less likely tokens too, which lose their loss here. With two tokens to
    choose from both are one set.
    """

    SOURCE = (
        "epsilon sampling, Hewitt et al. 2022, arXiv 2210.15191; of a lagged policy as"
        " the nucleus of NLPO, arXiv 2210.01241, section 4"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"reference"})

    kind: Literal["likely_by_reference"] = "likely_by_reference"
    """What the reference holds for all but impossible is learned from in neither direction."""
    least: float = Field(default=0.001, gt=0.0, lt=1.0)
    """Probability by the reference from which on a token counts."""

    def of_update(
        self,
        logprobs_BT: "Tensor",  # noqa: ARG002
        *,
        old_logprobs_BT: "Tensor",  # noqa: ARG002
        batch: PolicyBatch,
    ) -> "Tensor | None":
        """Drop what the reference finds unlikely; see `TokenWeight.of_update`."""
        what = "token weight likely_by_reference"
        reference_BT = needed(batch.reference_logprobs_BT, "reference_logprobs_BT", what)
        return reference_BT >= log(self.least)

    def describe(self) -> str:
        """`reference at least 0.001`."""
        return f"reference at least {self.least:g}"
