"""Closing gaps: who moves, and that what is behind the finished ones is the same as before."""

import numpy as np
import pytest
import torch

from posttrain.learning.rollouts.engines.compaction import fill_the_gaps, move_to_front


def test_the_last_open_prompts_fill_the_gaps_of_the_first():
    is_open = np.array([True, False, True, False, True, False, True, True])
    # Open are 0, 2, 4, 6, 7; of the first five places 1 and 3 are free, and 6 and 7 come there.
    assert fill_the_gaps(is_open, 5).tolist() == [0, 6, 2, 7, 4]


def test_nothing_moves_where_the_first_stay():
    is_open = np.array([True, True, True, False])
    assert fill_the_gaps(is_open, 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("chosen", [[0, 6, 2, 7, 4], [3, 2, 1, 0], [1, 2, 3], [0, 1]])
def test_moving_equals_choosing(chosen):
    cache = torch.arange(16.0).view(8, 2)
    expected = cache[torch.tensor(chosen)]
    assert move_to_front(cache, torch.tensor(chosen)).equal(expected)
