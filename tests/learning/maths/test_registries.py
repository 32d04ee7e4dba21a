"""A choice by name is a Literal type and a dict of functions: both must list the same names."""

from typing import get_args

import pytest

from posttrain.learning.algorithms.advantages.group import GroupRelative
from posttrain.learning.algorithms.preference import LOSSES, PreferenceLoss
from posttrain.learning.maths import divergence, group_relative, kl, preference, ratios, reduce

FIELDS = GroupRelative.model_fields


@pytest.mark.parametrize(
    ("names", "functions"),
    [
        (group_relative.Baseline, group_relative.BASELINES),
        (group_relative.RewardScale, group_relative.SCALES),
        # Written again where a recipe names them: reading one imports no torch.
        (FIELDS["baseline"].annotation, group_relative.BASELINES),
        (FIELDS["scale"].annotation, group_relative.SCALES),
        (divergence.Divergence, divergence.DIVERGENCES),
        (kl.KLEstimator, kl.KL_ESTIMATORS),
        (preference.PairLoss, preference.PAIR_LOSSES),
        (PreferenceLoss, LOSSES),
        (ratios.RatioLevel, ratios.RATIO_LEVELS),
        (reduce.Aggregation, reduce.TOKEN_WEIGHT_FORMULAS),
    ],
)
def test_literal_and_registry_agree(names, functions):
    assert list(get_args(names)) == list(functions)
