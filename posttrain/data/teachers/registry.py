"""The teachers that ship with posttrain."""

from posttrain.data.teachers.agreeing import AgreeingTeacher
from posttrain.data.teachers.base import Teacher
from posttrain.data.teachers.confident import ConfidentTeacher
from posttrain.data.teachers.folding import FoldingTeacher
from posttrain.data.teachers.programs import ProgramTeacher
from posttrain.data.teachers.repeating import RepeatingTeacher
from posttrain.data.teachers.self_rating import SelfRatingTeacher
from posttrain.data.teachers.server import ServerTeacher
from posttrain.data.teachers.skipping import SkippingTeacher
from posttrain.stage.slots import Slot

TEACHERS = Slot(
    "teacher",
    Teacher,
    {
        "programs": ProgramTeacher,
        "confident": ConfidentTeacher,
        "repeating": RepeatingTeacher,
        "skipping": SkippingTeacher,
        "folding": FoldingTeacher,
        "self_rating": SelfRatingTeacher,
        "agreeing": AgreeingTeacher,
        "server": ServerTeacher,
    },
    one_of=("solve",),
)
