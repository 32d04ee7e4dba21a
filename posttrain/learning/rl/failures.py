"""What an error of the learner says: its stage, and which tensor was not finite first."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posttrain.learning.algorithms.part_outputs import PartOutputs
from posttrain.learning.models.optim import NotFiniteError
from posttrain.learning.training.failed_batch import keep_for_replay
from posttrain.stage.errors import UserError


@contextmanager
def errors_of_rl() -> Iterator[None]:
    """Say in the errors of an algorithm's parts, which know nothing of stages, where they stood."""
    try:
        yield
    except UserError as error:
        raise UserError(f"rl: {error}") from None


def refuse_infinite(loss: float, outputs: PartOutputs, *, where: str) -> None:
    """Stop training at a loss that is not a number.

    Args:
        loss: Of a whole update, or of a part of it.
        outputs: What the algorithm's parts gave for it.
        where: The step, for the error.

    Raises:
        NotFiniteError: It is infinite or not a number; the part that began it is named.

    """
    if math.isfinite(loss):
        return
    remedy = "lower the learning rate, or raise the temperature if it is near 0"
    if culprit := outputs.culprit():
        remedy = _look_there(culprit)
    raise NotFiniteError(f"{where}: the loss is {loss}, so training stopped; {remedy}")


@contextmanager
def naming_culprit(outputs: PartOutputs) -> Iterator[None]:
    """Name the first tensor with NaN or infinity, at padding too, if a gradient is not finite."""
    try:
        yield
    except NotFiniteError as error:
        if culprit := outputs.culprit(padding=True):
            raise NotFiniteError(f"{error}; {_look_there(culprit)}") from None
        raise


@contextmanager
def keeping_parts(
    parts: Sequence[Any], weights: Callable[[], Any], folder: Path, *, step: int, seed: int
) -> Iterator[None]:
    """Keep the parts of an update that is not finite, for it to be made again.

    Args:
        parts: Of the update.
        weights: Gives what it began from.
        folder: Where both are kept.
        step: Number of the step, from 1.
        seed: Of the stage.

    Raises:
        NotFiniteError: The same, with where they are kept.

    """
    try:
        yield
    except NotFiniteError as error:
        told = keep_for_replay(error, folder, weights(), parts, step=step, seed=seed)
        raise NotFiniteError(told) from None


def _look_there(culprit: str) -> str:
    return f"the first NaN or infinity is in {culprit}, so look there first"
