"""The slot `schedule`: shapes of the way that a scheduled number takes."""

from posttrain.stage.shapes.base import ScheduleShape
from posttrain.stage.shapes.compound import Compound
from posttrain.stage.shapes.cosine import Cosine
from posttrain.stage.shapes.cycle import Cycle
from posttrain.stage.shapes.exponential import Exponential
from posttrain.stage.shapes.linear import Linear
from posttrain.stage.shapes.step import Step
from posttrain.stage.slots import Slot

SCHEDULE_SHAPES = Slot(
    "schedule",
    ScheduleShape,
    {
        "linear": Linear,
        "cosine": Cosine,
        "exponential": Exponential,
        "compound": Compound,
        "step": Step,
        "cycle": Cycle,
    },
    one_of=("value",),
)
