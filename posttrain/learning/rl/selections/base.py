"""The slot of the selections: what a part of it implements, and how a group is marked by one."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, ClassVar

from posttrain.learning.rl.rollout import as_one, marked, sides
from posttrain.stage.errors import UserError
from posttrain.stage.part_checks import check_declared
from posttrain.stage.seeds import purpose_seed
from posttrain.stage.slots import Part, name_of

if TYPE_CHECKING:
    from posttrain.learning.rl.rollout import Group, Rollout


class Selection(Part):
    """Which rollouts of a group are learned from, once all of them are rewarded.

    What is left out is stored beside the others, and counts in no statistic of the group.
    """

    METRICS: ClassVar[Mapping[str, str]] = {}
    """What it measures of a step, with a description; in the curve as ``rl/selection_<name>``."""

    def keep(self, rollouts: "Sequence[Rollout]", draw: Random) -> Sequence[int]:
        """Choose the rollouts that are learned from.

        Args:
            rollouts: Those that are compared with each other, each whole, with what it earned and
                what its environment counted (`facts`), in the order in which they were drawn.
            draw: Where all chance comes from.

        Returns:
            Their places in the sequence, each once; none where the group teaches nothing.

        """
        raise NotImplementedError

    def learned(self, group_size: int) -> int:
        """Return the most rollouts that are learned from of so many that are drawn."""
        return group_size

    def measure(self, groups: "Sequence[Sequence[Rollout]]") -> Mapping[str, float]:  # noqa: ARG002
        """Measure a step.

        Args:
            groups: All that it chose from, one sequence for each call of `keep`; `trained` says
                what is learned from.

        Returns:
            Values by name, of those that `METRICS` declares.

        """
        return {}


def selected(selection: Selection, group: "Group", *, seed: int, step: int) -> "Group":
    """Mark those rollouts of a group that are learned from.

    Args:
        selection: Chooses.
        group: Rewarded rollouts of one problem.
        seed: Of the run.
        step: 0-based step that they will be learned from in.

    Returns:
        The same rollouts, in their order.

    Raises:
        UserError: The selection gives a place twice, or one that there is not.

    """
    chosen: set[int] = set()
    for number, side in enumerate(sides(group)):
        whole = [as_one([group[place] for place in places]) for places in side]
        draw = Random(purpose_seed(seed, "selection", step, group[0].problem_id, number))
        kept = list(selection.keep(whole, draw))
        if len(set(kept) & set(range(len(side)))) != len(kept):
            raise UserError(
                f"rl: {name_of(selection)}: `keep` was given {len(side)} rollouts and gave the"
                f" places {kept}; let it give different numbers from 0 to {len(side) - 1}"
            )
        chosen.update(place for each in kept for place in side[each])
    return [row for at, each in enumerate(group) for row in marked([each], trained=at in chosen)]


def measured(selection: Selection, groups: "Sequence[Group]") -> Mapping[str, float]:
    """Ask a selection what it measures of a step.

    Args:
        selection: Of the run.
        groups: All that were drawn for the step.

    Returns:
        Values by name; nothing where no group is learned from.

    Raises:
        UserError: It measures what its METRICS does not declare.

    """
    chosen = [
        [as_one([group[place] for place in places]) for places in side]
        for group in groups
        if any(rollout.trained for rollout in group)
        for side in sides(group)
    ]
    found = selection.measure(chosen) if chosen else {}
    check_declared(found, selection.METRICS, part=name_of(selection))
    return found
