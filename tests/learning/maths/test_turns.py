import torch

from posttrain.learning.maths.advantages import group_relative
from posttrain.learning.maths.segments import joint_ids
from posttrain.learning.maths.turns import spread_turns


def test_spread_turns():
    turns = torch.tensor([[-1, 0, 0, -1, 1], [-1, 1, 0, -1, -1]])
    advantages = torch.tensor([[2.0, -3.0], [5.0, 7.0]])
    assert spread_turns(advantages, turns).tolist() == [
        [0.0, 2.0, 2.0, 0.0, -3.0],
        [0.0, 7.0, 5.0, 0.0, 0.0],
    ]


def test_turn_level_credit_from_rewards_to_tokens():
    # Two rollouts of one problem with two turns each: turn 0 pays 1 and 0, turn 1 pays 2 and 6.
    rewards_BK = torch.tensor([[1.0, 2.0], [0.0, 6.0]])
    problem, turn = torch.zeros(4, dtype=torch.long), torch.tensor([0, 1, 0, 1])
    advantages = group_relative(
        rewards_BK.flatten(), joint_ids(problem, turn), baseline="mean", scale="none", epsilon=0.0
    )
    tokens = spread_turns(advantages.view(2, 2), torch.tensor([[0, 0, -1, 1], [0, -1, 1, 1]]))
    assert tokens.tolist() == [[0.5, 0.5, 0.0, -2.0], [-0.5, 0.0, 2.0, 2.0]]
