"""Merges of weights, each worked out by hand."""

import pytest
import torch

from posttrain.learning.models.merges.average import Average
from posttrain.learning.models.merges.base import ToMerge
from posttrain.learning.models.merges.dare import Dare
from posttrain.learning.models.merges.task_arithmetic import TaskArithmetic
from posttrain.learning.models.merges.ties import Ties
from posttrain.stage.errors import UserError


def given(base=None, **models):
    """Models whose five weights, or as many as there are, stand in two tensors."""

    def parted(values):
        return {"a": torch.tensor([values[:1]]), "b": torch.tensor(values[1:])}

    policies = {name: parted(values) for name, values in models.items()}
    return ToMerge(policies, parted(base) if base else {}, seed=3)


def flat(weights):
    return [*weights["a"].flatten().tolist(), *weights["b"].tolist()]


def test_the_average_by_hand():
    models = given(one=[1.0, 2.0, 3.0], two=[3.0, 2.0, -1.0])
    assert flat(Average().merged(models)) == [2.0, 2.0, 1.0]
    # 3/4 of the first and 1/4 of the second.
    assert flat(Average(shares={"one": 3.0}).merged(models)) == [1.5, 2.0, 2.0]
    with pytest.raises(UserError, match="no policy 'onee' is connected; did you mean 'one'"):
        Average(shares={"onee": 1.0}).merged(models)
    with pytest.raises(UserError, match="give weights from 0 on"):
        Average(shares={"one": 0.0, "two": 0.0}).merged(models)


def test_task_arithmetic_by_hand():
    """Base (1, 1): changes (1, 0) and (0, 2); half of the first, less the second."""
    models = given(base=[1.0, 1.0], one=[2.0, 1.0], two=[1.0, 3.0])
    found = TaskArithmetic(scale=0.5, scales={"two": -1.0}).merged(models)
    assert flat(found) == [1.5, -1.0]
    assert flat(models.base) == [1.0, 1.0]


def test_ties_by_hand():
    """Of five changes three stay: (4, -1, 3, 0, 0) and (-2, -3, 1, 0, 0).

    Their sums have the signs + - + and none, so the first keeps 4 alone, the second the mean of -1
    and -3, the third that of 3 and 1.
    """
    base = [10.0] * 5
    one, two = [14.0, 9.0, 13.0, 10.5, 10.1], [8.0, 7.0, 11.0, 10.2, 10.0]
    models = given(base, one=one, two=two)
    part = Ties(density=0.6)
    assert flat(part.merged(models)) == [14.0, 8.0, 12.0, 10.0, 10.0]
    assert flat(Ties(density=0.6, scale=0.5).merged(models)) == [12.0, 9.0, 11.0, 10.0, 10.0]
    assert part.figures(models) == {"sign_conflicts": pytest.approx(1 / 3)}


def test_where_changes_cancel_the_sign_of_most_weights_decides():
    """1 and -1 cancel; the other two weights pull up, so 1 is kept. Turned around, -1 is."""
    up = given([0.0] * 3, one=[1.0, 2.0, 2.0], two=[-1.0, 2.0, 2.0])
    assert flat(Ties(density=1.0).merged(up)) == [1.0, 2.0, 2.0]
    down = given([0.0] * 3, one=[1.0, -2.0, -2.0], two=[-1.0, -2.0, -2.0])
    assert flat(Ties(density=1.0).merged(down)) == [-1.0, -2.0, -2.0]


def test_one_model_of_all_changes_is_itself():
    models = given([1.0, 2.0, 3.0], one=[2.0, 1.5, 3.0])
    for part in (TaskArithmetic(scale=1.0), Ties(density=1.0), Dare(drop=0.0)):
        assert flat(part.merged(models)) == [2.0, 1.5, 3.0]


def test_dropped_changes_are_made_up_for():
    """Each change of 1 becomes 4 with probability 1/4: of 40000 a quarter, +- 5 deviations."""
    many = {"w": torch.zeros(200, 200)}
    models = ToMerge({"one": {"w": torch.ones(200, 200)}}, many, seed=3)
    part = Dare(drop=0.75)
    found = part.merged(models)["w"]
    assert set(found.unique().tolist()) == {0.0, 4.0}
    deviation = (0.25 * 0.75 / 40000) ** 0.5
    assert abs(float((found == 4).double().mean()) - 0.25) < 5 * deviation
    assert torch.equal(part.merged(models)["w"], found)
    other = ToMerge(models.policies, models.base, seed=4)
    assert not torch.equal(part.merged(other)["w"], found)
