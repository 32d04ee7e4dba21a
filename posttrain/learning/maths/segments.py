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
