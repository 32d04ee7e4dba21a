"""Gates on the chain itself: whole tables, figures within limits, nothing recalled or refuted."""

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from posttrain.provenance.ledger import ArtifactRecord, conflicts
from posttrain.provenance.ledger.annotations import standing
from posttrain.provenance.lineage.recalls import recalled
from posttrain.publishing.release.gates.base import (
    Evidence,
    Gate,
    GateResult,
    StoredEvidence,
)
from posttrain.publishing.release.names import BITWISE, LEVELS
from posttrain.stage.artifact_kinds import kind_named
from posttrain.stage.errors import UserError


class LimitGate(Gate):
    """A figure that a stage recorded lies within limits. It has no interval: a sanity check."""

    kind: Literal["limit"]
    metric: str
    """As the stage reports it, for example rl/truncation_rate."""
    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("give at_least, at_most or both")
        return self

    def check(self, evidence: Evidence) -> GateResult:
        """Look the figure up in what the stages recorded."""
        stages = evidence.chain.stages
        return self.decide({key: value for run in stages for key, value in run.metrics.items()})

    def judge_again(self, stored: StoredEvidence, stated: Mapping[str, float]) -> GateResult:  # noqa: ARG002
        """Look the figure up in what the release says that the stages recorded."""
        return self.decide(stored.metrics)

    def decide(self, metrics: Mapping[str, float]) -> GateResult:
        """Compare the figure; one that other samples would change by chance is refused."""
        if re.search(r"/(pass_at|best_of|majority)\w*$", self.metric):
            rule = f"{self.metric} is an estimate, which a limit cannot decide"
            remedy = "use kind: threshold, which asks its interval, or kind: improvement"
            return GateResult(False, rule, {}, remedy)
        low = f"{self.at_least:g} <= " if self.at_least is not None else ""
        high = f" <= {self.at_most:g}" if self.at_most is not None else ""
        rule = f"{low}{self.metric}{high}, as the stage recorded it"
        if self.metric not in metrics:
            remedy = f"no stage recorded {self.metric}; there are {', '.join(sorted(metrics))}"
            return GateResult(False, rule, {}, remedy)
        value = metrics[self.metric]
        if not math.isfinite(value):
            return GateResult(False, rule, {}, f"{self.metric} is {value}, which no limit holds")
        return GateResult(self.passes({"value": value}), rule, {"value": value})

    def passes(self, figures: Mapping[str, float]) -> bool:
        """Compare the figure with the limits."""
        least = -math.inf if self.at_least is None else self.at_least
        most = math.inf if self.at_most is None else self.at_most
        return least <= figures["value"] <= most


class SchemaGate(Gate):
    """Every table and report in the policy's ancestry has its bytes, its type and no gaps."""

    kind: Literal["schema"]

    def check(self, evidence: Evidence) -> GateResult:
        """Read every table and report of the chain again."""
        rule = "every table and report of the chain has its recorded bytes, its schema and no gaps"
        made = [record for run in evidence.chain.stages for record in run.outputs]
        checked = 0
        for record in made:
            try:
                checked += _check_artifact(record, evidence.find(record))
            except (UserError, ValueError) as error:
                figures = {"checked": float(checked)}
                return GateResult(False, rule, figures, f"{record.path}: {error}")
        figures = {"checked": float(checked), "artifacts": float(len(made))}
        return GateResult(self.passes(figures), rule, figures)

    def passes(self, figures: Mapping[str, float]) -> bool:
        """Ask for the count that a reading which came to its end gives."""
        return "artifacts" in figures


class RecallGate(Gate):
    """Neither the release nor anything that it was made from was recalled."""

    kind: Literal["recall"]

    def check(self, evidence: Evidence) -> GateResult:
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

    def passes(self, figures: Mapping[str, float]) -> bool:
        """Count what was recalled."""
        return figures["recalled"] == 0


class ReproducibilityGate(Gate):
    """The recipe declares at least this level, and the ledger does not contradict it."""

    kind: Literal["reproducibility"]
    level: Literal["L0", "L1", "L2", "L3"] = "L0"
    executions: int = Field(1, ge=1)
    """Times that every stage must have been executed under its key, always with equal outputs."""
    portable: bool = False
    """Every stage must have been bound to kernels that come to equal bytes on other processors."""

    def check(self, evidence: Evidence) -> GateResult:
        """Compare the declared level, and what executions of the same keys have made."""
        declared = evidence.chain.recipe.run.level
        rule = (
            f"the recipe declares {self.level} or stricter (it declares {declared}), no key of the "
            "chain ever made other bytes, no verification at that level failed, and every stage "
            f"was executed {self.executions} or more times, verifications included"
        ) + (", with portable kernels" if self.portable else "")
        bound = [
            run.stage
            for run in evidence.chain.stages
            if self.portable and run.circumstances.get("kernels") != "portable"
        ]
        stages = {run.key: run.stage for run in evidence.chain.stages}
        found = [each for each in conflicts(evidence.ledger.store, list(stages)) if each.comparable]
        verified = evidence.ledger.annotations.verifications_of(list(stages))
        refuted = [key for key in stages if standing(verified.get(key, ())).get(declared) is False]
        # How often each key was really executed: in runs, and where it was verified bit for bit.
        executed = Counter(
            run.key for run in evidence.ledger.every_stage_run() if run.status == "succeeded"
        )
        for key in stages:
            again = verified.get(key, ())
            executed[key] += sum(each.level == "L0" and each.holds for each in again)
        rarest = min(stages, key=lambda key: executed[key])
        figures = {
            "stages": float(len(stages)),
            "conflicts": float(len(found)),
            "fewest_executions": float(executed[rarest]),
            "refuted": float(len(refuted)),
            **({"not_portable": float(len(bound))} if self.portable else {}),
        }
        remedy = ""
        if LEVELS.index(declared) > LEVELS.index(self.level):
            remedy = f"set run.level to {self.level}, and run again"
        elif found and declared in BITWISE:
            remedy = (
                f"stage '{found[0].stage}' made different bytes under one key; see posttrain audit"
            )
        elif refuted:
            remedy = (
                f"stage '{stages[refuted[0]]}' was verified at {declared} and did not hold; "
                "see posttrain audit"
            )
        elif bound:
            remedy = (
                f"stage '{bound[0]}' ran with kernels of one processor; set run.kernels to portable"
                " and run on an x86 processor with AVX2"
            )
        elif executed[rarest] < self.executions:
            stage = stages[rarest]
            remedy = (
                f"stage '{stage}' was executed {executed[rarest]} times; "
                f"posttrain run --from {stage}"
            )
        return GateResult(not remedy, rule, figures, remedy)

    def passes(self, figures: Mapping[str, float]) -> bool:
        """Compare the counts that speak against the level at every level."""
        portable = figures.get("not_portable", float(self.portable)) == 0
        enough = figures["fewest_executions"] >= self.executions
        return portable and enough and figures["refuted"] == 0

    def judge_again(self, stored: StoredEvidence, stated: Mapping[str, float]) -> GateResult:
        """Compare the declared level, and the counts that the ledger gave."""
        strict = LEVELS.index(stored.level) <= LEVELS.index(self.level)
        agrees = stored.level not in BITWISE or stated["conflicts"] == 0
        return GateResult(strict and agrees and self.passes(stated), "", stated)


def _check_artifact(record: ArtifactRecord, path: Path) -> bool:
    """Read a table or report again; other kinds are left alone, and False says so."""
    from posttrain.data.schemas import NULLABLE
    from posttrain.data.tables import check_table, schema_of

    kind = kind_named(record.type)
    if kind.shape == "table":
        num_rows = check_table(path, schema_of(kind))
        if record.rows is not None and num_rows != record.rows:
            raise UserError(f"it has {num_rows} rows, and {record.rows} were recorded")
        _refuse_gaps(path, may_lack=NULLABLE.get(str(record.type), frozenset()))
    elif kind.shape == "report":
        json.loads(path.read_text(encoding="utf-8"))
    return kind.shape in ("table", "report")


def _refuse_gaps(path: Path, *, may_lack: Collection[str]) -> None:
    """Raise at a column in which values are missing, but for those where that means unjudged."""
    import polars as pl

    missing = pl.scan_parquet(path).null_count().collect().row(0, named=True)
    for column, count in missing.items():
        if count and column not in may_lack:
            raise UserError(f"{count} values of its column '{column}' are missing")
