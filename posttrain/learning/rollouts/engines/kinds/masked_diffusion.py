"""Answers that are unmasked step by step."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.rollouts.engines.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import RolloutEngine


class MaskedDiffusionEngine(Engine):
    """Begin with an answer of masks and unmask it, block by block, a few tokens at each pass.

    For policies of `tasks.denoise`, which read what is there without an order. An answer has as
    many tokens as it was taught, and ends at its first end token. The log-probability of a sampled
    token is that at the pass that unmasked it.
    """

    SHARES_PROCESS: ClassVar[bool] = True
    UNMASKS: ClassVar[bool] = True
    SOURCE: ClassVar[str] = (
        "LLaDA, arXiv 2502.09992, section 2.4; ML-GSAI/LLaDA at 41760b9, generate.py"
    )

    kind: Literal["masked_diffusion"] = "masked_diffusion"
    at_once: int = Field(default=1, ge=1)
    """Tokens that a pass unmasks."""
    block: int | None = Field(default=None, ge=1)
    """Tokens of a block; a block is unmasked before the next one begins. Null is one for all."""
    order: Literal["low_confidence", "random"] = "low_confidence"
    """What is masked again of what a pass says: that of which the policy is least sure, or any."""

    @contextmanager
    def open(self, policy: "Policy", *, batch_size: int) -> "Iterator[RolloutEngine]":
        """Unmask by the policy's own module; see `Engine.open`."""
        from posttrain.learning.rollouts.engines.masked_diffusion import MaskedDiffusionSampler

        yield MaskedDiffusionSampler(
            policy,
            at_once=self.at_once,
            block=self.block,
            by_chance=self.order == "random",
            batch_size=batch_size,
        )
