import pytest
import torch

from posttrain.learning.maths.advantages import group_relative
from posttrain.learning.maths.reweighting import positive_group_weights, sign_weighted


def test_sign_weights():
    advantages = torch.tensor([2.0, -3.0, 0.0])
    assert sign_weighted(advantages, positive=0.1, negative=1.0).tolist() == pytest.approx(
        [0.2, -3.0, 0.0]
    )
    assert sign_weighted(advantages, positive=0.0, negative=1.0).tolist() == [0.0, -3.0, 0.0]
    assert sign_weighted(advantages, positive=3.0, negative=0.5).tolist() == [6.0, -1.5, 0.0]
    assert sign_weighted(advantages / 4, positive=3.0, negative=1.0)[0].item() == 1.5


def test_weights_among_positives():
    # Brevity 0 and -ln 3 at temperature 1: odds 1 and 1/3, mean 2/3, weights 3/2 and 1/2.
    brevity = torch.tensor([0.0, -1.0986123, 5.0, 0.3])
    positive = torch.tensor([True, True, False, True])
    groups = torch.tensor([0, 0, 0, 1])
    weights = positive_group_weights(brevity, positive, groups, temperature=1.0)
    assert weights.tolist() == pytest.approx([1.5, 0.5, 0.0, 1.0])
    none = positive_group_weights(brevity, positive & False, groups, temperature=1.0)
    assert none.tolist() == [0.0] * 4
    # A very low temperature takes the best alone, without overflow: weight 2 of 2.
    cold = positive_group_weights(brevity, positive, groups, temperature=1e-6)
    assert cold.tolist() == [2.0, 0.0, 0.0, 1.0]


def test_weighted_successes_never_turn_negative():
    # A length penalty of .9 inside the reward sinks the long success below the mean of its group;
    # as a weight among successes it only ranks them.
    correct, brevity = torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([0.0, 0.0, -0.9, 0.0])
    groups = torch.zeros(4, dtype=torch.long)
    options = {"baseline": "mean", "scale": "none", "epsilon": 0.0}
    assert group_relative(correct + brevity, groups, **options)[2] < 0
    weights = positive_group_weights(brevity, correct > 0, groups, temperature=1.0)
    advantages = group_relative(correct, groups, **options) * torch.where(correct > 0, weights, 1.0)
    assert advantages[0] > advantages[2] > 0 > advantages[3]
