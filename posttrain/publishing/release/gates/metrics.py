"""Gates on metrics: who is compared with whom; the statistics are in `release.statistics`."""

import re

from posttrain.publishing.release import statistics
from posttrain.publishing.release.config import (
    ComparisonGate,
    ImprovementGate,
    LimitGate,
    NoRegressionGate,
    ThresholdGate,
)
from posttrain.publishing.release.gates.evidence import Evidence
from posttrain.publishing.release.results import Results, collect, policy_named
from posttrain.publishing.release.statistics import GateResult

PARENT = "parent"


def threshold(gate: ThresholdGate, evidence: Evidence) -> GateResult:
    """See `ThresholdGate`."""
    return statistics.threshold(gate, evidence.results)


def improvement(gate: ImprovementGate, evidence: Evidence) -> GateResult:
    """See `ImprovementGate`."""
    other = other_results(gate, evidence)
    return (
        _no_parent(gate) if other is None else statistics.improvement(gate, evidence.results, other)
    )


def no_regression(gate: NoRegressionGate, evidence: Evidence) -> GateResult:
    """See `NoRegressionGate`."""
    other = other_results(gate, evidence)
    return (
        _no_parent(gate)
        if other is None
        else statistics.no_regression(gate, evidence.results, other)
    )


def limit(gate: LimitGate, evidence: Evidence) -> GateResult:
    """See `LimitGate`."""
    if _is_estimate(gate.metric):
        rule = f"{gate.metric} is an estimate, which a limit does not judge"
        remedy = "use kind: threshold, which asks its interval, or kind: improvement"
        return GateResult(False, rule, {}, remedy)
    metrics = {name: value for run in evidence.chain.stages for name, value in run.metrics.items()}
    low = f"{gate.at_least:g} <= " if gate.at_least is not None else ""
    high = f" <= {gate.at_most:g}" if gate.at_most is not None else ""
    rule = f"{low}{gate.metric}{high}, as the stage recorded it"
    if gate.metric not in metrics:
        known = ", ".join(sorted(metrics))
        return GateResult(False, rule, {}, f"no stage recorded {gate.metric}; there are {known}")
    value = metrics[gate.metric]
    passed = (gate.at_least is None or value >= gate.at_least) and (
        gate.at_most is None or value <= gate.at_most
    )
    return GateResult(passed, rule, {"value": value})


def _is_estimate(metric: str) -> bool:
    """Return whether other samples of the same policy would give another value by chance."""
    return re.search(r"/(pass_at|best_of|majority)\w*$", metric) is not None


def other_results(gate: ComparisonGate, evidence: Evidence) -> Results | None:
    """Results of the policy that a gate compares with; None where that is a parent that is not."""
    name = gate.against
    if name == PARENT:
        if evidence.parent_results is not None:
            return evidence.parent_results
        if gate.without_parent is None:
            return None
        name = gate.without_parent
    evaluation = evidence.chain.evaluation
    policy = policy_named(evaluation, name)
    return collect(evidence.ledger, evidence.finder, policy=policy, evaluation=evaluation)


def _no_parent(gate: ComparisonGate) -> GateResult:
    remedy = (
        "there is no release to compare with yet; set without_parent: POLICY, a policy of the "
        "same evaluation that stands in for it"
    )
    return GateResult(
        False, f"{gate.metric} is compared with the release before this one", {}, remedy
    )
