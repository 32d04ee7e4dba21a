"""The rules that a stage's process keeps, as other processes take them over that work for it."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from posttrain.stage.errors import UserError

Heard = Callable[[Exception | None], str | None]
"""Says which refusal an error came of; without an error, which one was gone on without."""
Rules = Callable[[], Heard]
"""Called once in a process, which keeps them from then on; it can be pickled."""


def _nothing(error: Exception | None) -> None:
    """Say nothing: nothing is refused."""
    del error


def _none() -> Heard:
    return _nothing


# Those of the stage that this process runs come last; for all of its threads.
_kept: list[Rules] = [_none]


def hand_on(rules: Rules) -> None:
    """Have every process that is started to work for this one keep these rules."""
    _kept.append(rules)


def present_rules() -> Rules:
    """Return the rules of this process; outside of a stage there are none."""
    return _kept[-1]


@contextmanager
def keeping(heard: Heard) -> Iterator[None]:
    """Do something under rules, and say what they refused.

    Args:
        heard: What the rules gave.

    Raises:
        UserError: Something was refused, whether or not the work went on without.

    """
    try:
        yield
    except Exception as error:
        said = heard(error)
        if said is not None:
            traceback.print_exc()  # for the stage's log, which alone tells where
            raise UserError(said) from error
        raise
    said = heard(None)
    if said is not None:
        raise UserError(said)
