"""Which engine a stage samples with."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from posttrain.learning.rollouts.engines.engine import Engine
from posttrain.learning.rollouts.engines.registry import ENGINES
from posttrain.stage.errors import UserError
from posttrain.stage.resources import RayResources
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import AllowedAt, RolloutEngine

EngineConfig = Annotated[Engine, InSlot(ENGINES)]
"""What a stage's `engine` field holds; as it is part of the stage's parameters, its key sees it."""


@contextmanager
def open_engine(
    engine: Engine,
    policy: "Policy",
    *,
    batch_size: int = 512,
    ray: RayResources | None = None,
) -> "Iterator[RolloutEngine]":
    """Open an engine on a policy, for as long as the context lasts; then its memory is free again.

    Args:
        engine: Which one, and its settings.
        policy: What is drawn from.
        batch_size: Sequences that the torch engine draws together.
        ray: A cluster, whose actors then have an engine each.

    Yields:
        The engine.

    Raises:
        UserError: The engine is not installed, or cannot take the policy.

    """
    if ray is None:
        with engine.open(policy, batch_size=batch_size) as opened:
            yield opened
    else:
        from posttrain.learning.rollouts.engines.ray_engine import open_actors

        with open_actors(engine, policy, ray, batch_size=ray.rows or batch_size) as opened:
            yield opened


@contextmanager
def open_under(
    allowed_at: "AllowedAt | None",
    engine: Engine,
    policy: "Policy",
    *,
    ray: RayResources | None = None,
) -> "Iterator[RolloutEngine]":
    """Open what draws from a policy under a mask, for as long as the context lasts.

    Args:
        allowed_at: Which tokens may be drawn; None for all, which is the engine by itself.
        engine: What samples where all may be.
        policy: What is drawn from.
        ray: A cluster, whose actors then have an engine each.

    Yields:
        The engine.

    Raises:
        UserError: The engine, or the cluster, could not ask the mask.

    """
    if allowed_at is not None and ray is not None:
        raise UserError(
            "rl: draw.mask is asked at every token, which the learner's own process alone can;"
            " leave resources.ray out"
        )
    with (
        open_engine(engine, policy, ray=ray)
        if allowed_at is None
        else engine.open_under(policy, allowed_at)
    ) as opened:
        yield opened
