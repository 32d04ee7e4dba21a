"""The selections that ship with posttrain."""

from posttrain.learning.rl.selections.base import Selection
from posttrain.learning.rl.selections.brief_successes import BriefSuccesses
from posttrain.learning.rl.selections.clean_calls import CleanCalls
from posttrain.learning.rl.selections.every import Every
from posttrain.learning.rl.selections.greedy_failed import GreedyFailed
from posttrain.learning.rl.selections.last_hint import LastHint
from posttrain.learning.rl.selections.resample_on_correct import ResampleOnCorrect
from posttrain.learning.rl.selections.solved_band import SolvedBand
from posttrain.learning.rl.selections.told_in_order import ToldInOrder
from posttrain.stage.slots import Slot

SELECTIONS = Slot(
    "selection",
    Selection,
    {
        "every": Every,
        "clean_calls": CleanCalls,
        "greedy_failed": GreedyFailed,
        "resample_on_correct": ResampleOnCorrect,
        "solved_band": SolvedBand,
        "last_hint": LastHint,
        "brief_successes": BriefSuccesses,
        "told_in_order": ToldInOrder,
    },
    one_of=("keep",),
)
