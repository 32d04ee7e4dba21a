"""The context managers that ship with posttrain, by kind."""

from posttrain.learning.episodes.contexts.base import ContextManager
from posttrain.learning.episodes.contexts.summarize import Summarize
from posttrain.learning.episodes.contexts.truncate import Truncate
from posttrain.learning.episodes.contexts.whole import Whole
from posttrain.stage.slots import Slot

CONTEXT_MANAGERS = Slot(
    "context_manager",
    ContextManager,  # type: ignore[type-abstract]
    {"whole": Whole, "truncate": Truncate, "summarize": Summarize},
    one_of=("is_full",),
)
