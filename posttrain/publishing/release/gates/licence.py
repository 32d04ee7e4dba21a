"""Under which licences do the inputs come?"""

from posttrain.publishing.release.config import LicenceGate
from posttrain.publishing.release.gates.evidence import Evidence
from posttrain.publishing.release.inputs import outside_inputs
from posttrain.publishing.release.licences import UNKNOWN
from posttrain.publishing.release.statistics import GateResult


def licence(gate: LicenceGate, evidence: Evidence) -> GateResult:
    """Every input from outside has a licence that is known, and allowed where a list is given."""
    allowed = f" and that is one of {', '.join(gate.allowed)}" if gate.allowed else ""
    unknown_too = " (unknown ones are accepted)" if gate.allow_unknown else ""
    rule = f"every input from outside has a licence that is known{allowed}{unknown_too}"
    inputs = outside_inputs(evidence.chain, evidence.config.licences)
    unknown = [each for each in inputs if each.licence == UNKNOWN]
    refused = [
        each
        for each in inputs
        if gate.allowed and each.licence != UNKNOWN and each.licence not in gate.allowed
    ]
    figures = {
        "inputs": float(len(inputs)),
        "unknown": float(len(unknown)),
        "not_allowed": float(len(refused)),
    }
    if unknown and not gate.allow_unknown:
        each = unknown[0]
        remedy = (
            f"nothing says the licence of '{each.name}' ({each.origin}, read by {each.stage}); "
            f"state it in recipe.yaml: release: {{licences: {{{each.name}: SPDX-ID}}}}, "
            "or set allow_unknown on the licence gate"
        )
        return GateResult(False, rule, figures, remedy)
    if refused:
        each = refused[0]
        remedy = f"'{each.name}' ({each.origin}) is under {each.licence}; use another input"
        return GateResult(False, rule, figures, remedy)
    return GateResult(True, rule, figures)
