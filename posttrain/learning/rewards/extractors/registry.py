"""The extractors that ship with posttrain, by kind."""

from posttrain.learning.rewards.extractors.after_thinking import AfterThinkingAnswer
from posttrain.learning.rewards.extractors.base import Extractor
from posttrain.learning.rewards.extractors.boxed import BoxedAnswer
from posttrain.learning.rewards.extractors.code import CodeAnswer
from posttrain.learning.rewards.extractors.json_value import JsonAnswer
from posttrain.learning.rewards.extractors.last_line import LastLineAnswer
from posttrain.learning.rewards.extractors.marker import MarkerAnswer
from posttrain.learning.rewards.extractors.regex import RegexAnswer
from posttrain.learning.rewards.extractors.tag import TagAnswer
from posttrain.learning.rewards.extractors.whole import WholeAnswer
from posttrain.stage.slots import Slot

EXTRACTORS = Slot(
    "extractor",
    Extractor,
    {
        "marker": MarkerAnswer,
        "boxed": BoxedAnswer,
        "tag": TagAnswer,
        "regex": RegexAnswer,
        "json": JsonAnswer,
        "last_line": LastLineAnswer,
        "whole": WholeAnswer,
        "code": CodeAnswer,
        "after_thinking": AfterThinkingAnswer,
    },
    one_of=("extract",),
)
