"""Is the evaluation in the training data? Asked again, of the bytes that are released."""

from posttrain.data.filters.base import KEEP
from posttrain.data.filters.overlap import evaluation_overlap
from posttrain.data.schemas import PROBLEMS
from posttrain.data.tables import read_table
from posttrain.publishing.release.config import ContaminationGate
from posttrain.publishing.release.gates.evidence import Evidence
from posttrain.publishing.release.statistics import GateResult


def contamination(gate: ContaminationGate, evidence: Evidence) -> GateResult:
    """Judge every table that a model of the chain was trained on against the evaluation's."""
    import polars as pl

    rule = (
        f"at most {gate.allowed} rows of tables that a model was trained on have the prompt of an "
        f"evaluation problem, or {gate.ngram} words in a row in common with one"
    )
    asked = [each for each in evidence.chain.evaluation.inputs if each.role == "problems"]
    if not asked:
        return GateResult(False, rule, {}, "the evaluation reads no table of problems to check")
    heldout = pl.concat([read_table(evidence.find(each), PROBLEMS) for each in asked])
    rows, found, worst = 0, 0, ""
    for record in evidence.chain.trained_on():
        table = pl.read_parquet(evidence.find(record))
        if "prompt" not in table.columns:
            continue
        prompts = table.unique("prompt", maintain_order=True)
        reasons = evaluation_overlap(
            prompts, heldout, ngram=gate.ngram, boilerplate=gate.boilerplate
        )
        bad = prompts.filter(reasons["reason"] != KEEP)
        rows += len(table)
        if len(bad):
            found += len(table.join(bad.select("prompt"), on="prompt", how="semi"))
            worst = worst or f"{record.path} has the prompt {bad['prompt'][0]!r}"
    figures = {"rows": float(rows), "contaminated": float(found)}
    remedy = f"{worst}; drop such rows before training (the curate stage does)" if worst else ""
    return GateResult(found <= gate.allowed, rule, figures, remedy)
