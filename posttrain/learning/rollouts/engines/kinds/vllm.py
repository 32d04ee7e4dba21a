"""vLLM in the stage's own process."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rollouts.engines.engine import Engine
from posttrain.learning.rollouts.engines.vllm_settings import VllmSettings
from posttrain.stage.needs import PROCESSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import RolloutEngine


class VllmEngine(Engine, VllmSettings):
    """vLLM in the stage's own process; the settings decide how much fits and how it rounds."""

    PACKAGES = frozenset({"vllm"})
    SOURCE = "arXiv 2309.06180"

    kind: Literal["vllm"] = "vllm"

    def reaches(self) -> frozenset[str]:
        """Talk to what vLLM starts, by TCP."""
        return frozenset({PROCESSES})

    @contextmanager
    def open(self, policy: "Policy", *, batch_size: int) -> "Iterator[RolloutEngine]":
        """Start vLLM on a copy of the weights; it forms its batches itself; see `Engine.open`."""
        from posttrain.learning.rollouts.engines.copied_weights import refuse_other_distribution
        from posttrain.learning.rollouts.engines.vllm_engine import VllmRolloutEngine

        opened = VllmRolloutEngine(policy.model, policy.tokenizer, self)
        try:
            refuse_other_distribution(opened, policy, name="vllm")
            yield opened
        finally:
            opened.close()
