"""Parameters of reinforcement learning of several policies in one stage."""

from typing import Annotated, ClassVar, Self

from pydantic import model_validator

from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.draw_config import PLAIN
from posttrain.learning.rl.exchanges.alone import Alone
from posttrain.learning.rl.exchanges.base import Exchange
from posttrain.learning.rl.exchanges.registry import EXCHANGES
from posttrain.stage.schedule import schedules_in
from posttrain.stage.slots import InSlot, name_of


class SeveralConfig(RlConfig):
    """Parameters of every policy, and what they give each other."""

    IDENTITY_OF: ClassVar[str] = "coevolve"

    exchange: Annotated[Exchange, InSlot(EXCHANGES)] = Alone()
    """What the policies give each other in a step: `alone`, or a mapping with a kind."""

    @property
    def steps_between_checkpoints(self) -> int:
        """`checkpoint_every` counts updates; of several policies it is kept between steps alone."""
        return max(1, self.checkpoint_every // self.updates_per_step)

    @model_validator(mode="after")
    def _one_after_the_other(self) -> Self:
        told = "and several policies are trained step by step"
        for name, value, plain in (
            ("staleness", self.staleness, 0),
            ("ahead", self.ahead, 0),
            ("stop", self.stop, None),
            ("draw.instructions", self.draw.instructions, None),
            ("draw.mask", self.draw.mask, None),
        ):
            if value != plain:
                raise ValueError(
                    f"{name} is set, {told}, each from what was drawn for the step, to the last"
                    " one; leave it out"
                )
        if self.producer != PLAIN:
            raise ValueError(
                f"producer {self.producer.kind} plays episodes, and {name_of(self.exchange)}"
                " exchanges answers to problems; leave producer out"
            )
        return self

    @model_validator(mode="after")
    def _sampler_hears(self) -> Self:
        sampler = self.draw.sampler
        # What a sampler measures is what it made of the answers that it heard of.
        if sampler.metrics and not self.exchange.HEARD:
            raise ValueError(
                f"draw.sampler {sampler.kind} learns from answers to the problems as they are, and"
                f" in {name_of(self.exchange)} there are none; take uniform"
            )
        return self

    def _refuse_schedules(self) -> None:
        super()._refuse_schedules()
        for path, number in schedules_in(self):
            if number.metric:
                raise ValueError(
                    f"{path} follows {number.metric}, which each of several policies measures by"
                    " itself; let it follow the step"
                )
