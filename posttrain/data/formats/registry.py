"""The formats that ship with posttrain."""

from posttrain.data.formats.alpaca import AlpacaFormat
from posttrain.data.formats.base import RowFormat
from posttrain.data.formats.instruction import InstructionFormat
from posttrain.data.formats.kto import KtoFormat
from posttrain.data.formats.mapped import MappedFormat
from posttrain.data.formats.messages import MessagesFormat
from posttrain.data.formats.preference import PreferenceFormat
from posttrain.data.formats.prompt_completion import PromptCompletionFormat
from posttrain.data.formats.question_answer import QuestionAnswerFormat
from posttrain.data.formats.ranked import RankedFormat
from posttrain.data.formats.sharegpt import ShareGptFormat
from posttrain.data.formats.text import TextFormat
from posttrain.stage.slots import Slot

FORMATS = Slot(
    "format",
    RowFormat,
    {
        "messages": MessagesFormat,
        "sharegpt": ShareGptFormat,
        "alpaca": AlpacaFormat,
        "instruction": InstructionFormat,
        "prompt_completion": PromptCompletionFormat,
        "question_answer": QuestionAnswerFormat,
        "text": TextFormat,
        "preference": PreferenceFormat,
        "kto": KtoFormat,
        "ranked": RankedFormat,
        "map": MappedFormat,
    },
    one_of=("convert",),
)
