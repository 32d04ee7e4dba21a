"""The slot of the engines: what a recipe says of one, and how it is opened."""

from typing import TYPE_CHECKING, ClassVar

from posttrain.stage.errors import UserError
from posttrain.stage.slots import Part, name_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import AllowedAt, RolloutEngine


class Engine(Part):
    """What draws tokens from a policy."""

    SHARES_PROCESS: ClassVar[bool] = False
    """Whether several processes of one stage may have one each, beside the weights that train."""
    UNMASKS: ClassVar[bool] = False
    """Whether it fills whole answers of masks, for policies that were taught to."""

    def open(self, policy: "Policy", *, batch_size: int) -> "AbstractContextManager[RolloutEngine]":
        """Start the engine on a policy, for as long as the context lasts.

        Args:
            policy: Its present weights are drawn from until the engine's `update`.
            batch_size: Sequences that are drawn together, where the engine leaves that to us.

        Raises:
            UserError: The engine is not installed, or cannot take the policy.

        """
        raise NotImplementedError

    def open_under(
        self, policy: "Policy", allowed_at: "AllowedAt"
    ) -> "AbstractContextManager[RolloutEngine]":
        """Start what draws from the policy renormalized over the tokens that a mask allows.

        Args:
            policy: As for `open`.
            allowed_at: Which tokens may stand where.

        Raises:
            UserError: The engine cannot ask at every token.

        """
        raise UserError(
            f"rl: draw.mask is asked at every token, which {name_of(self)} cannot; set engine to"
            " torch"
        )


def refuse_crowded(engine: Engine, processes: int, *, on_ray: bool, where: str) -> None:
    """Refuse an engine that would need a process of its own beside each of several.

    Args:
        engine: Of a stage.
        processes: That share the stage.
        on_ray: Whether actors of a cluster draw, which have an engine each.
        where: Name of the stage.

    Raises:
        UserError: It would.

    """
    if processes > 1 and not on_ray and not engine.SHARES_PROCESS:
        raise UserError(
            f"{where}.engine {engine.kind} needs a process of its own beside each of"
            " resources.processes; set resources.ray, whose actors have an engine each, or set"
            " engine to torch"
        )
