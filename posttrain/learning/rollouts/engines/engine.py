"""The slot of the engines: what a recipe says of one, and how it is opened."""

from typing import TYPE_CHECKING, ClassVar

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import RolloutEngine


class Engine(Part):
    """What draws tokens from a policy."""

    SHARES_PROCESS: ClassVar[bool] = False
    """Whether several processes of one stage may have one each, beside the weights that train."""

    def open(self, policy: "Policy", *, batch_size: int) -> "AbstractContextManager[RolloutEngine]":
        """Start the engine on a policy, for as long as the context lasts.

        Args:
            policy: Its present weights are drawn from until the engine's `update`.
            batch_size: Sequences that are drawn together, where the engine leaves that to us.

        Raises:
            UserError: The engine is not installed, or cannot take the policy.

        """
        raise NotImplementedError
