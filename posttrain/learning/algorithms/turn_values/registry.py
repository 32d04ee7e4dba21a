"""The values of turns that ship with posttrain."""

from posttrain.learning.algorithms.turn_values.base import TurnValues
from posttrain.learning.algorithms.turn_values.implicit import ImplicitValues
from posttrain.learning.algorithms.turn_values.options import OptionValues
from posttrain.learning.algorithms.turn_values.outcome import OutcomeValues
from posttrain.learning.algorithms.turn_values.returns import ReturnValues
from posttrain.learning.algorithms.turn_values.success import SuccessValues
from posttrain.learning.algorithms.turn_values.td import TdValues
from posttrain.stage.slots import Slot

TURN_VALUES = Slot(
    "turn_value",
    TurnValues,
    {
        "td": TdValues,
        "implicit": ImplicitValues,
        "returns": ReturnValues,
        "options": OptionValues,
        "success": SuccessValues,
        "outcome": OutcomeValues,
    },
    one_of=("loss", "advantages"),
)
