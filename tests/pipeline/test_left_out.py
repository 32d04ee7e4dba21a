"""A null that takes nothing out, beside a part that it nearly names."""

import pytest

from posttrain.learning.rl.config import RlConfig
from posttrain.pipeline.left_out import refuse_near_misses
from posttrain.stage.errors import UserError

KL = {"kl": {"coefficient": 0.1}}


def refused(algorithm):
    params = {"algorithm": algorithm}
    refuse_near_misses(params, RlConfig.parse(params, where="rl"), where="rl")


@pytest.mark.parametrize("algorithm", [{"preset": "grpo"}, {"regularizers": KL}])
def test_a_slip_that_would_leave_the_part_on_is_refused(algorithm):
    said = {**algorithm, "regularizers": {**algorithm.get("regularizers", {}), "kll": None}}
    with pytest.raises(UserError, match=r"^rl\.algorithm\.regularizers\.kll: null .* mean 'kl'\?$"):
        refused(said)


@pytest.mark.parametrize(
    "algorithm",
    [
        {"preset": "grpo", "regularizers": {"kl": None}},
        # Said again what is so already.
        {"preset": "dapo", "regularizers": {"kl": None}},
        # One goes, and another one of nearly its name comes.
        {"preset": "grpo", "regularizers": {"kl": None, "kl_2": {"kind": "kl", **KL["kl"]}}},
        {"regularizers": {"kll": None}},
        # No name of a part, but a setting that may be null.
        {"preset": "grpo", "overlong": None},
    ],
)
def test_other_nulls_are_left_alone(algorithm):
    refused(algorithm)
