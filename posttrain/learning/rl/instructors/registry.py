"""The instructors that ship with posttrain."""

from posttrain.learning.rl.instructors.base import Instructor
from posttrain.learning.rl.instructors.population import PopulationInstructor
from posttrain.stage.slots import Slot

INSTRUCTORS = Slot(
    "instructor", Instructor, {"population": PopulationInstructor}, one_of=("start",)
)
