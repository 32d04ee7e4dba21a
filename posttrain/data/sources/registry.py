"""The sources of problems that ship with posttrain."""

from posttrain.data.sources.answer_game import AnswerGameSource
from posttrain.data.sources.base import Source
from posttrain.data.sources.docids import DocidSource
from posttrain.data.sources.huggingface import HuggingFaceSource
from posttrain.data.sources.jsonl import JsonlSource
from posttrain.data.sources.parquet import ParquetSource
from posttrain.data.sources.reasoning_gym import ReasoningGymSource
from posttrain.data.sources.world import WorldSource
from posttrain.stage.slots import Slot

SOURCES = Slot(
    "source",
    Source,
    {
        "huggingface": HuggingFaceSource,
        "jsonl": JsonlSource,
        "parquet": ParquetSource,
        "reasoning_gym": ReasoningGymSource,
        "answer_game": AnswerGameSource,
        "docids": DocidSource,
        "world": WorldSource,
    },
    one_of=("read",),
)
