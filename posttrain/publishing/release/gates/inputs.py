"""Gates on what went in: nothing of the evaluation, and nothing without a license."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from posttrain.publishing.release.gates.base import (
    Evidence,
    Gate,
    GateResult,
    StoredEvidence,
)
from posttrain.publishing.release.inputs import OutsideInput
from posttrain.publishing.release.licenses import UNKNOWN, is_allowed


class ContaminationGate(Gate):
    """No training table shares a problem with the evaluation, checked anew on the bytes."""

    kind: Literal["contamination"]
    ngram: int | None = Field(13, ge=2)
    """A run of as many words in common counts as the same problem; null: equal prompts only."""
    boilerplate: int = Field(20, ge=1)
    """Runs that stand in more problems than this are a template and do not count."""
    allowed: int = Field(0, ge=0)
    """Training rows that may be contaminated."""

    def check(self, evidence: Evidence) -> GateResult:
        """Compare every table that a model of the chain was trained on with the evaluation's."""
        import polars as pl

        from posttrain.data.filters.base import KEEP
        from posttrain.data.filters.overlap import evaluation_overlap
        from posttrain.data.schemas import PROBLEMS
        from posttrain.data.tables import read_table

        rule = (
            f"at most {self.allowed} rows of tables that a model was trained on have the prompt of "
            f"an evaluation problem, or {self.ngram} words in a row in common with one"
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
                prompts, heldout, ngram=self.ngram, boilerplate=self.boilerplate
            )
            bad = prompts.filter(reasons["reason"] != KEEP)
            rows += len(table)
            if len(bad):
                found += len(table.join(bad.select("prompt"), on="prompt", how="semi"))
                worst = worst or f"{record.path} has the prompt {bad['prompt'][0]!r}"
        figures = {"rows": float(rows), "contaminated": float(found)}
        remedy = f"{worst}; drop such rows before training (the curate stage does)" if worst else ""
        return GateResult(self.passes(figures), rule, figures, remedy)

    def passes(self, figures: Mapping[str, float]) -> bool:
        """Compare the count with what is allowed."""
        return figures["contaminated"] <= self.allowed


class LicenseGate(Gate):
    """Every input from outside has a known license."""

    kind: Literal["license"]
    allow_unknown: bool = False
    allowed: tuple[str, ...] = ()
    """SPDX identifiers that are accepted; any known one where this is empty. Of a choice
    (`MIT OR GPL-3.0-only`) one must be among them."""
    parents: bool = False
    """Ask the same of the models that an input was made from, as their cards name them."""

    def check(self, evidence: Evidence) -> GateResult:
        """Look up the license of every input from outside."""
        return self.decide(evidence.inputs())

    def judge_again(self, stored: StoredEvidence, stated: Mapping[str, float]) -> GateResult:  # noqa: ARG002
        """Look at the inputs that the release names."""
        return self.decide(stored.inputs)

    def decide(self, inputs: Sequence[OutsideInput]) -> GateResult:
        """Ask for a known license of every input, and an allowed one."""
        inputs = [each for each in inputs if self.parents or each.parent_of is None]
        allowed = f" and that is one of {', '.join(self.allowed)}" if self.allowed else ""
        unknown_too = " (unknown ones are accepted)" if self.allow_unknown else ""
        of_parents = ", and every model that one was made from," if self.parents else ""
        known_one = f"a license that is known{allowed}{unknown_too}"
        rule = f"every input from outside{of_parents} has {known_one}"
        unknown = [each for each in inputs if each.license == UNKNOWN]
        known = [each for each in inputs if each.license != UNKNOWN]
        refused = [
            each for each in known if self.allowed and not is_allowed(each.license, self.allowed)
        ]
        remedy = ""
        if unknown and not self.allow_unknown:
            told = ", ".join(f"'{e.name}' ({e.origin}, read by {e.stage})" for e in unknown)
            lines = ", ".join(f"{name}: SPDX-ID" for name in dict.fromkeys(e.name for e in unknown))
            remedy = (
                f"nothing says the license of {told}; state it in recipe.yaml: "
                f"release: {{licenses: {{{lines}}}}}, or set allow_unknown on the license gate"
            )
        elif refused:
            each = refused[0]
            remedy = f"'{each.name}' ({each.origin}) is under {each.license}; use another input"
        figures = {
            "inputs": float(len(inputs)),
            "unknown": float(len(unknown)),
            "not_allowed": float(len(refused)),
        }
        return GateResult(not remedy, rule, figures, remedy)
