"""The verifiers that ship with posttrain, by kind."""

from posttrain.learning.rewards.verifiers.base import Verifier
from posttrain.learning.rewards.verifiers.box import BoxVerifier
from posttrain.learning.rewards.verifiers.choice import ChoiceVerifier
from posttrain.learning.rewards.verifiers.duel import DuelVerifier
from posttrain.learning.rewards.verifiers.edit_distance import EditDistanceVerifier
from posttrain.learning.rewards.verifiers.exact import ExactVerifier
from posttrain.learning.rewards.verifiers.expression import ExpressionVerifier
from posttrain.learning.rewards.verifiers.format import FormatVerifier
from posttrain.learning.rewards.verifiers.instructions import InstructionsVerifier
from posttrain.learning.rewards.verifiers.json_schema import SchemaVerifier
from posttrain.learning.rewards.verifiers.judge import JudgeVerifier
from posttrain.learning.rewards.verifiers.math import MathVerifier
from posttrain.learning.rewards.verifiers.numeric import NumericVerifier
from posttrain.learning.rewards.verifiers.played import PlayedVerifier
from posttrain.learning.rewards.verifiers.point import PointVerifier
from posttrain.learning.rewards.verifiers.python_tests import PythonTestsVerifier
from posttrain.learning.rewards.verifiers.reasoning_gym import GymVerifier
from posttrain.learning.rewards.verifiers.reasoning_gym_sandboxed import SandboxedGymVerifier
from posttrain.learning.rewards.verifiers.regex import RegexVerifier
from posttrain.learning.rewards.verifiers.sql import SqlVerifier
from posttrain.learning.rewards.verifiers.sql_graded import SqlGradedVerifier
from posttrain.learning.rewards.verifiers.token_f1 import TokenF1Verifier
from posttrain.learning.rewards.verifiers.tool_call import ToolCallVerifier
from posttrain.learning.rewards.verifiers.verilog import VerilogVerifier
from posttrain.stage.slots import Slot

VERIFIERS = Slot(
    "verifier",
    Verifier,
    {
        "exact": ExactVerifier,
        "numeric": NumericVerifier,
        "math": MathVerifier,
        "choice": ChoiceVerifier,
        "token_f1": TokenF1Verifier,
        "edit_distance": EditDistanceVerifier,
        "tool_call": ToolCallVerifier,
        "box": BoxVerifier,
        "point": PointVerifier,
        "instructions": InstructionsVerifier,
        "regex": RegexVerifier,
        "schema": SchemaVerifier,
        "reasoning_gym": GymVerifier,
        "format": FormatVerifier,
        "judge": JudgeVerifier,
        "reasoning_gym_sandboxed": SandboxedGymVerifier,
        "python_tests": PythonTestsVerifier,
        "played": PlayedVerifier,
        "duel": DuelVerifier,
        "expression": ExpressionVerifier,
        "sql": SqlVerifier,
        "sql_graded": SqlGradedVerifier,
        "verilog": VerilogVerifier,
    },
    one_of=("score", "verify"),
)
