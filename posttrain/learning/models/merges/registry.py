"""The merges that ship with posttrain."""

from posttrain.learning.models.merges.average import Average
from posttrain.learning.models.merges.base import Merge
from posttrain.learning.models.merges.dare import Dare
from posttrain.learning.models.merges.task_arithmetic import TaskArithmetic
from posttrain.learning.models.merges.ties import Ties
from posttrain.stage.slots import Slot

MERGES = Slot(
    "merge",
    Merge,
    {"average": Average, "dare": Dare, "task_arithmetic": TaskArithmetic, "ties": Ties},
    one_of=("merged",),
)
