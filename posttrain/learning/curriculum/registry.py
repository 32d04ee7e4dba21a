"""The problem samplers that ship with posttrain."""

from posttrain.learning.curriculum.base import ProblemSampler
from posttrain.learning.curriculum.solve_rate import SolveRate
from posttrain.learning.curriculum.uniform import Uniform
from posttrain.stage.slots import Slot

PROBLEM_SAMPLERS = Slot(
    "problem_sampler",
    ProblemSampler,
    {"solve_rate": SolveRate, "uniform": Uniform},
    one_of=("start",),
)
