"""What oracles have in common that ask a trained model of a port."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from pydantic import Field, PrivateAttr

from posttrain.learning.rewards.components.oracles.base import PairOracle

if TYPE_CHECKING:
    from posttrain.learning.rewards.port_models import PortModels


class AskingOracle(PairOracle):
    """Asks the model of one port."""

    model: str = Field(min_length=1)
    """Name under `inputs.reward_models`."""

    _models: "PortModels | None" = PrivateAttr(default=None)

    def ports(self) -> Sequence[str]:
        """Return the port of the model; see `PairOracle.ports`."""
        return (f"reward_models.{self.model}",)

    def asking(self, models: "PortModels") -> Self:
        """Return one that asks the model of the port; see `PairOracle.asking`."""
        bound = self.model_copy()
        bound._models = models
        return bound

    def asked(self) -> "PortModels":
        """Return the models of the ports, which `asking` gave."""
        if self._models is None:
            raise RuntimeError("the oracle was given no models; call `asking` first")
        return self._models
