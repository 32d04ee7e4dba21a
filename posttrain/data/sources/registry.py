"""The sources of problems that ship with posttrain."""

from posttrain.data.sources.answer_game import AnswerGameSource
from posttrain.data.sources.base import Source
from posttrain.data.sources.beliefs import BeliefSource
from posttrain.data.sources.code import CodeSource
from posttrain.data.sources.docids import DocidSource
from posttrain.data.sources.huggingface import HuggingFaceSource
from posttrain.data.sources.jsonl import JsonlSource
from posttrain.data.sources.logic import LogicSource
from posttrain.data.sources.opinions import OpinionsSource
from posttrain.data.sources.parquet import ParquetSource
from posttrain.data.sources.reasoning_gym import ReasoningGymSource
from posttrain.data.sources.restored import RestoredSource
from posttrain.data.sources.science import ScienceSource
from posttrain.data.sources.simulation import SimulationSource
from posttrain.data.sources.tabular import TabularSource
from posttrain.data.sources.told import ToldSource
from posttrain.data.sources.word_tree import WordTreeSource
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
        "word_tree": WordTreeSource,
        "world": WorldSource,
        "told": ToldSource,
        "opinions": OpinionsSource,
        "beliefs": BeliefSource,
        "code": CodeSource,
        "logic": LogicSource,
        "restored": RestoredSource,
        "science": ScienceSource,
        "simulation": SimulationSource,
        "tabular": TabularSource,
    },
    one_of=("read",),
)
