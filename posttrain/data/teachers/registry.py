"""The teachers that ship with posttrain."""

from posttrain.data.teachers.base import Teacher
from posttrain.data.teachers.programs import ProgramTeacher
from posttrain.data.teachers.server import ServerTeacher
from posttrain.stage.slots import Slot

TEACHERS = Slot(
    "teacher", Teacher, {"programs": ProgramTeacher, "server": ServerTeacher}, one_of=("solve",)
)
