"""The diagnostics that ship with posttrain."""

from posttrain.learning.rollouts.diagnostics.base import Diagnostic
from posttrain.learning.rollouts.diagnostics.behavior_baseline import BehaviorBaseline
from posttrain.learning.rollouts.diagnostics.crossing import Crossing
from posttrain.learning.rollouts.diagnostics.dataset_coverage import DatasetCoverage
from posttrain.learning.rollouts.diagnostics.effective_horizon import EffectiveHorizon
from posttrain.learning.rollouts.diagnostics.exploitability import Exploitability
from posttrain.learning.rollouts.diagnostics.frontier import Frontier
from posttrain.learning.rollouts.diagnostics.gold_curve import GoldCurve
from posttrain.learning.rollouts.diagnostics.one_vs_many import OneVsMany
from posttrain.learning.rollouts.diagnostics.posterior import Posterior
from posttrain.learning.rollouts.diagnostics.proxy_correlation import ProxyCorrelation
from posttrain.learning.rollouts.diagnostics.published_curves import PublishedCurves
from posttrain.learning.rollouts.diagnostics.representation_rank import RepresentationRank
from posttrain.learning.rollouts.diagnostics.tampering import Tampering
from posttrain.learning.rollouts.diagnostics.tracked_curves import TrackedCurves
from posttrain.learning.rollouts.diagnostics.weight_delta import WeightDelta
from posttrain.stage.slots import Slot

DIAGNOSTICS = Slot(
    "diagnostic",
    Diagnostic,
    {
        "crossing": Crossing,
        "behavior_baseline": BehaviorBaseline,
        "dataset_coverage": DatasetCoverage,
        "effective_horizon": EffectiveHorizon,
        "exploitability": Exploitability,
        "representation_rank": RepresentationRank,
        "weight_delta": WeightDelta,
        "tampering": Tampering,
        "one_vs_many": OneVsMany,
        "proxy_correlation": ProxyCorrelation,
        "gold_curve": GoldCurve,
        "frontier": Frontier,
        "posterior": Posterior,
        "published_curves": PublishedCurves,
        "tracked_curves": TrackedCurves,
    },
    one_of=("diagnose",),
)
