import math

import pytest
import torch

from posttrain.learning.algorithms.config import overlong_penalty

LENGTHS = torch.tensor([0, 80, 81, 90, 100, 120])


@pytest.mark.parametrize(
    ("bounded", "at_120"),
    [(True, -1.0), (False, -2.0)],  # TRL, OpenRLHF; AReaL, NeMo-RL, verl
)
def test_golden_values(bounded, at_120):
    penalty = overlong_penalty(LENGTHS, limit=100, buffer=20, bounded=bounded)
    assert penalty.tolist() == pytest.approx([0.0, 0.0, -0.05, -0.5, -1.0, at_120])


def test_without_a_buffer_it_is_a_step():
    lengths = torch.tensor([99, 100, 101])
    assert overlong_penalty(lengths, limit=100, buffer=0).tolist() == [0.0, 0.0, -1.0]
    unbounded = overlong_penalty(lengths, limit=100, buffer=0, bounded=False)
    assert unbounded.tolist() == [0.0, 0.0, -math.inf]
