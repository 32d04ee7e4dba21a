"""The reward components that ship with posttrain, by kind."""

from posttrain.learning.rewards.components.agreement import AgreementComponent
from posttrain.learning.rewards.components.banded_novelty import BandedNoveltyComponent
from posttrain.learning.rewards.components.base import Component
from posttrain.learning.rewards.components.best_length import BestLengthComponent
from posttrain.learning.rewards.components.brier import BrierComponent
from posttrain.learning.rewards.components.cosine_length import CosineLengthComponent
from posttrain.learning.rewards.components.critiqued_spans import CritiquedSpansComponent
from posttrain.learning.rewards.components.earned import EarnedComponent
from posttrain.learning.rewards.components.embedding import EmbeddingComponent
from posttrain.learning.rewards.components.format import FormatComponent
from posttrain.learning.rewards.components.group_length import GroupLengthComponent
from posttrain.learning.rewards.components.information_gain import InformationGainComponent
from posttrain.learning.rewards.components.judged_spans import JudgedSpansComponent
from posttrain.learning.rewards.components.log_ratio import LogRatioComponent
from posttrain.learning.rewards.components.majority import MajorityComponent
from posttrain.learning.rewards.components.model import ModelComponent
from posttrain.learning.rewards.components.moving_average import MovingAverageComponent
from posttrain.learning.rewards.components.order import OrderComponent
from posttrain.learning.rewards.components.overlong_length import OverlongLengthComponent
from posttrain.learning.rewards.components.pairwise import PairwiseComponent
from posttrain.learning.rewards.components.repeated_ngrams import RepeatedNgramsComponent
from posttrain.learning.rewards.components.repetition import RepetitionComponent
from posttrain.learning.rewards.components.self_report import SelfReportComponent
from posttrain.learning.rewards.components.shortness import ShortnessComponent
from posttrain.learning.rewards.components.solved_length import SolvedLengthComponent
from posttrain.learning.rewards.components.stored import StoredComponent
from posttrain.learning.rewards.components.subgoals import SubgoalsComponent
from posttrain.learning.rewards.components.target_length import TargetLengthComponent
from posttrain.learning.rewards.components.teacher import TeacherComponent
from posttrain.learning.rewards.components.token_log_ratio import TokenLogRatioComponent
from posttrain.learning.rewards.components.tokens import TokensComponent
from posttrain.learning.rewards.components.told_length import ToldLengthComponent
from posttrain.learning.rewards.components.trace_likeness import TraceLikenessComponent
from posttrain.learning.rewards.components.turn_information_gain import (
    TurnInformationGainComponent,
)
from posttrain.learning.rewards.components.unaligned_spans import UnalignedSpansComponent
from posttrain.learning.rewards.components.verifier import VerifierComponent
from posttrain.learning.rewards.components.win_rate import WinRateComponent
from posttrain.stage.slots import Slot

COMPONENTS = Slot(
    "component",
    Component,
    {
        "verifier": VerifierComponent,
        "format": FormatComponent,
        "brier": BrierComponent,
        "self_report": SelfReportComponent,
        "agreement": AgreementComponent,
        "majority": MajorityComponent,
        "model": ModelComponent,
        "log_ratio": LogRatioComponent,
        "token_log_ratio": TokenLogRatioComponent,
        "teacher": TeacherComponent,
        "pairwise": PairwiseComponent,
        "win_rate": WinRateComponent,
        "earned": EarnedComponent,
        "moving_average": MovingAverageComponent,
        "embedding": EmbeddingComponent,
        "banded_novelty": BandedNoveltyComponent,
        "information_gain": InformationGainComponent,
        "turn_information_gain": TurnInformationGainComponent,
        "repetition": RepetitionComponent,
        "repeated_ngrams": RepeatedNgramsComponent,
        "critiqued_spans": CritiquedSpansComponent,
        "judged_spans": JudgedSpansComponent,
        "unaligned_spans": UnalignedSpansComponent,
        "stored": StoredComponent,
        "subgoals": SubgoalsComponent,
        "trace_likeness": TraceLikenessComponent,
        "tokens": TokensComponent,
        "target_length": TargetLengthComponent,
        "overlong_length": OverlongLengthComponent,
        "cosine_length": CosineLengthComponent,
        "shortness": ShortnessComponent,
        "group_length": GroupLengthComponent,
        "best_length": BestLengthComponent,
        "solved_length": SolvedLengthComponent,
        "told_length": ToldLengthComponent,
        "order": OrderComponent,
    },
    one_of=("score", "score_all", "score_tokens", "score_turns"),
)
