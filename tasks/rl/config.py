"""Parameters of the stage: those of the loop that it runs, and what samples."""

from typing import Self

from pydantic import model_validator

from posttrain.learning.models.optimization import why_whole
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rollouts.engines.config import EngineConfig
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine
from posttrain.stage.slots import name_of


class RlStageConfig(RlConfig):
    """Rollouts, advantages, loss and optimization."""

    MECHANICS = RlConfig.MECHANICS | {"engine"}
    engine: EngineConfig = TorchEngine()
    """What samples: `torch`, or `vllm` where it is installed; a mapping also holds its settings."""

    @model_validator(mode="after")
    def _drawn_as_scored(self) -> Self:
        engine, producer = self.engine, self.producer
        if engine.UNMASKS and not producer.UNMASKED:
            raise ValueError(
                f"{name_of(engine)} unmasks answers, and {name_of(producer)} has them scored token"
                " by token; set producer to noised"
            )
        if producer.UNMASKED and not engine.UNMASKS:
            raise ValueError(
                f"{name_of(producer)} scores what masks hide, and {name_of(engine)} draws token by"
                " token; set engine to masked_diffusion"
            )
        return self

    def beyond_processes(self, processes: int) -> str | None:
        """Say what works on whole weights; see `StageConfig.beyond_processes`."""
        if processes == 1:
            return None
        if self.ahead:
            return (
                "ahead wants the whole policy in one process, but resources.processes has a part"
                " of it in each; set ahead to 0, or leave resources.processes out"
            )
        asked = {
            "the mean over the vocabulary": "vocabulary_ratio" in self.algorithm.needs,
            "advantage learned": "turn_values" in self.algorithm.needs,
            "updates.rehearsals": bool(self.updates.rehearsals),
        }
        for name, is_set in asked.items():
            if is_set:
                return (
                    f"{name} works on whole weights, but several processes have a part each; do"
                    " without it, or leave resources.processes out"
                )
        return why_whole(self.optimization, narrow=self.learner.trains_narrow)
