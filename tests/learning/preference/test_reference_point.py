"""What KTO's reference point is taken over, in training and in what is held out."""

from dataclasses import dataclass, replace

import polars as pl
import torch

from posttrain.data.batching import Batches
from posttrain.learning.preference.training import mismatched
from posttrain.learning.training.config import LearnerConfig
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.learning.training.trainer import SupervisedTrainer
from posttrain.stage.context import StageContext


def test_mismatched_completions_are_of_both_kinds_in_turn():
    pairs = pl.DataFrame({"chosen": ["c0", "c1", "c2", "c3"], "rejected": ["r0", "r1", "r2", "r3"]})
    # Half a table away are the pairs 2, 3, 0, 1.
    assert mismatched(pairs)["mismatched"].to_list() == ["c2", "r3", "c0", "r1"]
    assert mismatched(pairs[:1])["mismatched"].to_list() == ["c0"]


@dataclass(frozen=True)
class Part:
    """A micro-batch whose loss is its reference point."""

    value: float
    point: float = 0.0
    num_units: float = 1.0

    def to(self, device):
        return self


def test_what_is_held_out_has_the_reference_point_of_all_of_it(tmp_path):
    model = torch.nn.Linear(1, 1)

    def gather(given, parts, _step):
        assert given is model
        assert not given.training
        return [replace(part, point=sum(each.value for each in parts)) for part in parts]

    def loss(_model, part, _denominator):
        return torch.tensor(part.point), {}

    batches = Batches([[0], [1]], [1, 1], lambda places: Part(float(places[0] + 1)))
    objective = SupervisedObjective(batches, loss, heldout=batches)
    trainable = Trainable(model, LearnerConfig(), adapter=None, average=None)
    context = StageContext.quiet(tmp_path)
    # Parts of 1 and 2: each of the two costs 3 where both are gathered, and nothing where not.
    for told, expected in ((gather, 3.0), (None, 0.0)):
        objective = replace(objective, gather_heldout=told)
        assert SupervisedTrainer(trainable, objective, context).heldout_loss() == expected
