"""Which rows are measured and never trained on."""

from collections.abc import Sequence

from posttrain.learning.training.config import EarlyStopConfig
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import order_key


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
