"""A choice by name is a Literal type and a dict of functions: both must list the same names."""

from typing import get_args

import pytest

from posttrain.learning.algorithms.advantages import group
from posttrain.learning.algorithms.preference import LOSSES, PreferenceLoss
from posttrain.learning.maths import divergence, kl, preference, ratios, reduce


@pytest.mark.parametrize(
    ("names", "functions"),
    [
        (group.Baseline, group.BASELINES),
        (group.RewardScale, group.SCALES),
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
