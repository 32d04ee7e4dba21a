"""Parts of an RL stage that mean something together, and nothing one by one."""

from typing import ClassVar, Protocol, runtime_checkable

from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.slots import name_of, parts_in


@runtime_checkable
class InCompany(Protocol):
    """A part that does its work beside certain others, or none.

    Apart from the bases of the slots, which are in the keys of all stages of RL.
    """

    GOES_WITH: ClassVar[frozenset[str]]
    """The others, by slot and kind, such as `producer.two_orders`."""


def refuse_without_company(config: StageConfig, where: str) -> None:
    """Refuse a part without those that it goes with.

    Args:
        config: Of a stage.
        where: The stage's name.

    Raises:
        UserError: The first that lacks one, with the remedy.

    """
    parts = list(parts_in(config))
    there = {name_of(part) for part in parts}
    for part in parts:
        if not isinstance(part, InCompany):
            continue
        if lacking := sorted(part.GOES_WITH - there):
            raise UserError(
                f"{where}: {name_of(part)} goes with {' and '.join(lacking)}, which the stage does"
                f" not have; set what is missing, or take {name_of(part)} away"
            )
