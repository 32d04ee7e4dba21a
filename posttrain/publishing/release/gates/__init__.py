"""The gates: each takes what is to be released and says whether it passes, with its figures."""

from collections.abc import Callable, Mapping
from typing import Any

from posttrain.publishing.release.config import AnyGate
from posttrain.publishing.release.gates.contamination import contamination
from posttrain.publishing.release.gates.evidence import Evidence
from posttrain.publishing.release.gates.integrity import recall, reproducibility, schema
from posttrain.publishing.release.gates.licence import licence
from posttrain.publishing.release.gates.metrics import improvement, limit, no_regression, threshold
from posttrain.publishing.release.statistics import GateResult

GATES: Mapping[str, Callable[[Any, Evidence], GateResult]] = {
    "threshold": threshold,
    "improvement": improvement,
    "no_regression": no_regression,
    "limit": limit,
    "contamination": contamination,
    "schema": schema,
    "licence": licence,
    "recall": recall,
    "reproducibility": reproducibility,
}


def judge(gate: AnyGate, evidence: Evidence) -> GateResult:
    """Apply one gate."""
    return GATES[gate.kind](gate, evidence)
