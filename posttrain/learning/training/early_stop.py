"""Early stop of supervised training: rows that are only measured, and when to go on no longer."""

from collections.abc import Sequence

from posttrain.learning.training.best_weights import BestWeights
from posttrain.learning.training.config import EarlyStopConfig
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.progress import Stateful
from posttrain.learning.training.stopping import StopRule
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import order_key


class EarlyStop:
    """Stops once the held-out loss falls no more, and ends with the best weights where asked."""

    def __init__(
        self, config: EarlyStopConfig | None, trainable: Trainable, context: StageContext
    ) -> None:
        self._every = config.every if config else 0
        self._rule = StopRule(config, better="lower") if config else None
        keeps = config is not None and config.keep == "best"
        self.best = BestWeights(trainable) if keeps else None
        """The weights that the lowest loss was measured of."""
        self._note = context.note

    @property
    def stopped(self) -> bool:
        """True where the loss has not fallen for as long as the configuration waits."""
        return self._rule is not None and self._rule.stopped

    def parts(self) -> dict[str, Stateful]:
        """What a checkpoint holds of it."""
        parts = {"stopping": self._rule, "best": self.best}
        return {name: part for name, part in parts.items() if part is not None}

    def due(self, step: int) -> bool:
        """True where the held-out loss is measured after `step` steps."""
        return self._every > 0 and step % self._every == 0

    def observe(self, step: int, heldout_loss: float) -> None:
        """Take the measurement after a step; the best weights so far are kept.

        Args:
            step: Steps made.
            heldout_loss: Mean loss over what is held out.

        """
        assert self._rule is not None
        self._rule.observe(heldout_loss)
        if self.best and self._rule.improved:
            self.best.mark()
            self.best.keep(step)

    def finish(self, step: int, *, num_steps: int) -> None:
        """Say why training ended, and whose weights are in place where the best were kept.

        Args:
            step: Steps made.
            num_steps: Steps planned.

        """
        if self.stopped:
            self._note(f"stopped after step {step} of {num_steps}: the held-out loss falls no more")
        if self.best and self.best.step:
            self._note(f"the weights are those after step {self.best.step}, the best measured")


def hold_out(
    keys: Sequence[str], config: EarlyStopConfig | None, *, seed: int
) -> tuple[list[int], list[int]]:
    """Choose rows to train on and rows to measure; rows of one key stay together.

    Args:
        keys: Key of each row, mostly its prompt.
        config: What share to hold out; None trains on everything.
        seed: With the key, it decides where a row goes.

    Returns:
        Indices to train on and indices to measure. With a config, both have at least one key.

    Raises:
        UserError: All rows have one key.

    """
    if config is None:
        return list(range(len(keys))), []
    names = sorted(set(keys), key=lambda key: order_key(seed, "early_stop", key))
    if len(names) < 2:
        raise UserError(
            "early_stop holds out whole prompts, but all rows have the same one; "
            "give more prompts or leave early_stop out"
        )
    num_held = min(len(names) - 1, max(1, round(config.heldout_fraction * len(names))))
    held = set(names[:num_held])
    taught = [index for index, key in enumerate(keys) if key not in held]
    return taught, [index for index, key in enumerate(keys) if key in held]
