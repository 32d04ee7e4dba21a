"""Gates on the chain itself: whole tables, nothing recalled, nothing that came out differently."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from posttrain.data.schemas import NULLABLE
from posttrain.data.tables import check_table, schema_of
from posttrain.provenance.ledger import ArtifactRecord, Verification, conflicts
from posttrain.provenance.ledger.annotations import standing
from posttrain.provenance.lineage.recalls import recalled
from posttrain.publishing.release.config import RecallGate, ReproducibilityGate, SchemaGate
from posttrain.publishing.release.gates.evidence import Evidence
from posttrain.publishing.release.names import LEVELS
from posttrain.publishing.release.statistics import GateResult
from posttrain.stage.artifact_kinds import kind_named
from posttrain.stage.errors import UserError


def schema(_gate: SchemaGate, evidence: Evidence) -> GateResult:
    """Read every table and report of the chain again."""
    rule = "every table and report of the chain has its recorded bytes, its schema and no gaps"
    made = [record for run in evidence.chain.stages for record in run.outputs]
    checked = 0
    for record in made:
        try:
            checked += _check_artifact(record, evidence)
        except (UserError, ValueError) as error:
            return GateResult(False, rule, {"checked": float(checked)}, f"{record.path}: {error}")
    return GateResult(True, rule, {"checked": float(checked), "artifacts": float(len(made))})


def _check_artifact(record: ArtifactRecord, evidence: Evidence) -> bool:
    path = evidence.find(record)
    kind = kind_named(record.type)
    if kind.shape == "table":
        num_rows = check_table(path, schema_of(kind))
        if record.rows is not None and num_rows != record.rows:
            raise UserError(f"it has {num_rows} rows, and {record.rows} were recorded")
        _refuse_gaps(path, may_lack=NULLABLE.get(str(record.type), frozenset()))
        return True
    if kind.shape == "report":
        json.loads(path.read_text(encoding="utf-8"))
        return True
    return False


def _refuse_gaps(path: Path, *, may_lack: Collection[str]) -> None:
    """Raise at a column in which values are missing, but for those where that means unjudged."""
    import polars as pl

    missing = pl.scan_parquet(path).null_count().collect().row(0, named=True)
    for column, count in missing.items():
        if count and column not in may_lack:
            raise UserError(f"{count} values of its column '{column}' are missing")


def recall(_gate: RecallGate, evidence: Evidence) -> GateResult:
    """Ask the ledger about every artifact of the chain."""
    rule = "no artifact of the chain, and nothing that it was made from, was recalled"
    artifacts = evidence.chain.artifacts()
    reasons = recalled(evidence.ledger, sorted({record.digest for record in artifacts}))
    figures = {"artifacts": float(len(artifacts)), "recalled": float(len(reasons))}
    bad = next((record for record in artifacts if record.digest in reasons), None)
    if bad is None:
        return GateResult(True, rule, figures)
    remedy = f"{bad.path}: {reasons[bad.digest]}; make it anew from other data"
    return GateResult(False, rule, figures, remedy)


def reproducibility(gate: ReproducibilityGate, evidence: Evidence) -> GateResult:
    """Compare the declared level, and what executions of the same keys have made."""
    declared = evidence.chain.recipe.run.level
    rule = (
        f"the recipe declares {gate.level} or stricter (it declares {declared}), no key of the "
        f"chain ever made other bytes, no verification at that level failed, and every stage was "
        f"executed {gate.executions} or more times, verifications included"
    )
    keys = [run.key for run in evidence.chain.stages]
    found = conflicts(evidence.ledger.store, keys)
    verified = evidence.ledger.annotations.verifications_of(keys)
    executed = _executions(evidence, keys, verified)
    refuted = [key for key in keys if standing(verified.get(key, ())).get(declared) is False]
    fewest = min(executed.values())
    figures = {
        "stages": float(len(keys)),
        "conflicts": float(len(found)),
        "fewest_executions": float(fewest),
        "refuted": float(len(refuted)),
    }
    if LEVELS.index(declared) > LEVELS.index(gate.level):
        return GateResult(False, rule, figures, f"set run.level to {gate.level}, and run again")
    if found and declared in ("L0", "L1"):
        stage = found[0].stage
        remedy = f"stage '{stage}' made different bytes under one key; see posttrain audit"
        return GateResult(False, rule, figures, remedy)
    if refuted:
        stage = next(run.stage for run in evidence.chain.stages if run.key == refuted[0])
        remedy = f"stage '{stage}' was verified at {declared} and did not hold; see posttrain audit"
        return GateResult(False, rule, figures, remedy)
    if fewest < gate.executions:
        stage = next(run.stage for run in evidence.chain.stages if executed[run.key] == fewest)
        remedy = f"stage '{stage}' was executed {fewest} times; posttrain run --from {stage}"
        return GateResult(False, rule, figures, remedy)
    return GateResult(True, rule, figures)


def _executions(
    evidence: Evidence, keys: Sequence[str], verified: Mapping[str, Sequence[Verification]]
) -> dict[str, int]:
    """How often each key was really executed: in runs, and where it was verified bit for bit."""
    counts = {
        key: sum(each.level == "L0" and each.holds for each in verified.get(key, ()))
        for key in keys
    }
    for run in evidence.ledger.every_stage_run():
        if run.key in counts and run.status == "succeeded":
            counts[run.key] += 1
    return counts
