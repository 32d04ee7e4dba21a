"""Sums over groups of rows, for groups of any and unequal sizes, without a loop."""

import torch
from torch import Tensor


def dense_ids(group_B: Tensor) -> tuple[Tensor, int]:
    """Number the groups 0, 1, ... in the order of their ids; returns ``(index_B, num_groups)``."""
    ids_P, index_B = torch.unique(group_B, return_inverse=True)
    return index_B, len(ids_P)


def joint_ids(*ids_B: Tensor) -> Tensor:
    """Give each distinct combination of ids one id, such as of problem and turn.

    Groups of turns or steps: ``joint_ids(problem_B, turn_B)`` compares what stands at the same turn
    of the same problem; ``joint_ids(problem_B, state_B)`` compares the actions taken from one
    state, as GiGPO does (arXiv 2505.10978).

    Args:
        *ids_B: Integer ids, of one length.

    Returns:
        Ids ``[B]``: equal where all the given ones are equal.

    """
    index_B: Tensor = torch.unique(torch.stack(ids_B, -1), dim=0, return_inverse=True)[1]
    return index_B


def segment_sum(values_B: Tensor, index_B: Tensor, num_groups: int) -> Tensor:
    """Sum the values of each group.

    Args:
        values_B: One number per row.
        index_B: The group of each row, from 0 to ``num_groups - 1``.
        num_groups: P, number of groups.

    Returns:
        One sum per group, ``[P]``; 0 of an empty one.

    """
    return values_B.new_zeros(num_groups).index_add(0, index_B, values_B)


def segment_size(index_B: Tensor, num_groups: int) -> Tensor:
    """Count the rows of each group.

    Args:
        index_B: The group of each row, from 0 to ``num_groups - 1``.
        num_groups: P, number of groups.

    Returns:
        One integer per group, ``[P]``.

    """
    return torch.bincount(index_B, minlength=num_groups)


def first_of_each(ids_BT: Tensor, num_ids: int) -> tuple[Tensor, Tensor]:
    """Find where each id first stands in its row, such as where each turn of an episode begins.

    Args:
        ids_BT: Ids from 0; negative at places of none.
        num_ids: K, one above the largest id.

    Returns:
        The first place of each id, and whether the row has it at all, ``[B, K]`` each; the place of
        one that it has not is 0.

    """
    width = ids_BT.shape[1]
    place_BT = torch.arange(width, device=ids_BT.device).expand_as(ids_BT)
    # What is of no id competes for id 0 with a place that never wins.
    place_BT = torch.where(ids_BT >= 0, place_BT, width)
    first_BK = place_BT.new_full((len(ids_BT), num_ids), width)
    first_BK = first_BK.scatter_reduce(1, ids_BT.clamp(min=0), place_BT, reduce="amin")
    has_BK = first_BK < width
    return torch.where(has_BK, first_BK, 0), has_BK


def runs(mask_BT: Tensor) -> tuple[Tensor, int]:
    """Number the runs of each row, such as the turns of an episode: what is read parts them.

    Args:
        mask_BT: True inside of a run; between two runs lies at least one place that is not.

    Returns:
        The run of each place, from 0 within a row, -1 at places of none, ``[B, T]``; and the most
        runs of a row.

    """
    inside_BT = mask_BT.bool()
    before_BT = torch.zeros_like(inside_BT)
    before_BT[:, 1:] = inside_BT[:, :-1]
    number_BT = (inside_BT & ~before_BT).cumsum(-1) - 1
    num_runs = int(number_BT.amax()) + 1 if number_BT.numel() else 0
    return torch.where(inside_BT, number_BT, -1), num_runs


def sum_of_runs(values_BT: Tensor, run_BT: Tensor, num_runs: int) -> tuple[Tensor, Tensor]:
    """Sum the values of each run, and spread the sum over its places.

    Args:
        values_BT: One number per place.
        run_BT: The run of each place, as `runs` gives it.
        num_runs: K, the most runs of a row.

    Returns:
        The sum of the run that a place is of, and how many places that run has, ``[B, T]`` each;
        0 at places of none.

    """
    inside_BT, place_BT = run_BT >= 0, run_BT.clamp(min=0)
    empty_BK = values_BT.new_zeros(len(values_BT), max(1, num_runs))
    counted_BT = torch.where(inside_BT, values_BT, 0.0)
    size_BK = empty_BK.scatter_add(1, place_BT, inside_BT.to(values_BT.dtype))
    sum_BK = empty_BK.scatter_add(1, place_BT, counted_BT)
    sum_BT, size_BT = sum_BK.gather(1, place_BT), size_BK.gather(1, place_BT)
    zero = values_BT.new_zeros(())
    return torch.where(inside_BT, sum_BT, zero), torch.where(inside_BT, size_BT, zero)
