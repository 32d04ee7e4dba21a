"""The guidance that ships with posttrain, by kind."""

from posttrain.learning.episodes.guidance.base import Guidance
from posttrain.learning.episodes.guidance.feedback import Feedback
from posttrain.learning.episodes.guidance.plan import Plan
from posttrain.stage.slots import Slot

GUIDANCE = Slot(
    "guidance",
    Guidance,  # type: ignore[type-abstract]
    {"plan": Plan, "feedback": Feedback},
    one_of=("tell",),
)
