"""The problem samplers that ship with posttrain."""

from posttrain.learning.curriculum.alp_gmm import AlpGmm
from posttrain.learning.curriculum.band import Band
from posttrain.learning.curriculum.bandit import CategoryBandit
from posttrain.learning.curriculum.base import ProblemSampler
from posttrain.learning.curriculum.cyclical import Cyclical
from posttrain.learning.curriculum.designed import Designed
from posttrain.learning.curriculum.examples import Examples
from posttrain.learning.curriculum.in_turn import AllInTurn
from posttrain.learning.curriculum.replayed_levels import ReplayedLevels
from posttrain.learning.curriculum.solve_rate import SolveRate
from posttrain.learning.curriculum.transfer import Transfer
from posttrain.learning.curriculum.uniform import Uniform
from posttrain.stage.slots import Slot

PROBLEM_SAMPLERS = Slot(
    "problem_sampler",
    ProblemSampler,
    {
        "alp_gmm": AlpGmm,
        "band": Band,
        "bandit": CategoryBandit,
        "cyclical": Cyclical,
        "designed": Designed,
        "examples": Examples,
        "in_turn": AllInTurn,
        "replayed_levels": ReplayedLevels,
        "solve_rate": SolveRate,
        "transfer": Transfer,
        "uniform": Uniform,
    },
    one_of=("start",),
)
