"""The gates: each takes what is to be released and says whether it passes, with its figures."""

from collections.abc import Callable, Mapping
from typing import Any

from posttrain.release.config import AnyGate
from posttrain.release.gates.contamination import contamination
from posttrain.release.gates.evidence import Evidence
from posttrain.release.gates.integrity import recall, reproducibility, schema
from posttrain.release.gates.licence import licence
from posttrain.release.gates.metrics import improvement, limit, no_regression, threshold
from posttrain.release.statistics import Verdict

GATES: Mapping[str, Callable[[Any, Evidence], Verdict]] = {
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


def judge(gate: AnyGate, evidence: Evidence) -> Verdict:
    """Apply one gate."""
    return GATES[gate.kind](gate, evidence)
