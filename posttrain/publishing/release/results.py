"""Per-problem results of one policy: what every gate on a metric is computed from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posttrain.provenance.ledger import ArtifactRecord, Ledger, StageRun
from posttrain.provenance.ledger.records import PROVEN
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_json

# pass@k holds a number for each of them at once.
_MOST_SAMPLES = 2**24
# Counts of one problem: samples that were right, samples that were taken.
Counts = tuple[int, int]


@dataclass(frozen=True)
class Results:
    """Evaluations of one policy: seed -> problem id -> counts.

    `basis` names what was measured: digests of the problems, of the evaluation's parameters and of
    its code. Results are comparable only where it is equal.
    """

    policy: str
    basis: Mapping[str, str]
    by_seed: Mapping[str, Mapping[str, Counts]] = field(default_factory=dict)
    stage: str = "evaluate"
    """The stage to run for another seed."""

    @property
    def problems(self) -> list[str]:
        """Ids of the problems, sorted."""
        return sorted({each for counts in self.by_seed.values() for each in counts})

    def pooled(self) -> dict[str, Counts]:
        """Counts per problem over all seeds."""
        total: dict[str, list[int]] = {}
        for counts in self.by_seed.values():
            for problem, (right, taken) in counts.items():
                pair = total.setdefault(problem, [0, 0])
                pair[0] += right
                pair[1] += taken
        return {problem: (pair[0], pair[1]) for problem, pair in sorted(total.items())}

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        seeds = {seed: dict(counts) for seed, counts in self.by_seed.items()}
        return {"policy": self.policy, "basis": dict(self.basis), "by_seed": seeds}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Results":
        """The inverse of `to_json`."""
        seeds = {
            seed: {problem: (int(pair[0]), int(pair[1])) for problem, pair in counts.items()}
            for seed, counts in value["by_seed"].items()
        }
        taken = [each for counts in seeds.values() for _, each in counts.values()]
        right = [each for counts in seeds.values() for each, _ in counts.values()]
        if any(not 0 <= r <= t or t < 1 for r, t in zip(right, taken, strict=True)):
            raise UserError("a problem has more right samples than samples, or none")
        if len(taken) * max(taken, default=0) > _MOST_SAMPLES:
            raise UserError(f"there are more than {_MOST_SAMPLES} samples")
        return cls(str(value["policy"]), dict(value["basis"]), seeds)


def basis_of(evaluation: StageRun) -> dict[str, str]:
    """What an evaluation measured, apart from whom and with which seed."""
    problems = [record.digest for record in evaluation.inputs if record.role == "problems"]
    return {
        "problems": ",".join(problems),
        "params": sha256_of_json(evaluation.components.get("params", {})),
        "code": sha256_of_json(evaluation.components.get("code", {})),
    }


def collect(
    ledger: Ledger, finder: Finder, *, policy: ArtifactRecord, evaluation: StageRun
) -> Results:
    """Every evaluation of `policy` that the ledger knows and that measured what `evaluation` did.

    All seeds count, not the best ones: a lucky draw cannot be picked by evaluating again.
    """
    basis = basis_of(evaluation)
    by_seed: dict[str, Mapping[str, Counts]] = {}
    # Successful executions, oldest first: of two with one seed, the newer one counts.
    for run in ledger.every_stage_run():
        if run.stage == evaluation.stage and run.status in PROVEN:
            name = _name_of(run, policy.digest)
            if name is not None and basis_of(run) == basis:
                seed = run.components.get("runtime", {}).get("seed", "0")
                by_seed[seed] = counts_of(run, name, finder)
    return Results(policy.digest, basis, dict(sorted(by_seed.items())), evaluation.stage)


def policies_of(run: StageRun) -> dict[str, ArtifactRecord]:
    """The policies that an evaluation read, by the names that it calls them."""
    prefix = "policies."
    return {
        record.role.removeprefix(prefix): record
        for record in run.inputs
        if record.role.startswith(prefix)
    }


def policy_named(evaluation: StageRun, name: str) -> ArtifactRecord:
    """The policy that an evaluation calls `name`."""
    found = policies_of(evaluation)
    if name not in found:
        raise UserError(
            f"the evaluation has no policy '{name}' (it has {', '.join(sorted(found))}); "
            "name one of them in the gate"
        )
    return found[name]


def _name_of(run: StageRun, digest: str) -> str | None:
    """What an evaluation calls the policy with a digest; None where it read no such policy."""
    found = policies_of(run).items()
    return next((name for name, record in found if record.digest == digest), None)


def counts_of(run: StageRun, name: str, finder: Finder) -> Mapping[str, Counts]:
    """Read one evaluation's samples.

    Args:
        run: The evaluation.
        name: What it calls the policy.
        finder: Finds its outputs.

    Returns:
        Right and taken samples by problem.

    Raises:
        UserError: The stage has no such outputs, or they are in neither workspace nor cache.

    """
    import polars as pl

    report = json.loads(_file(run, "report", finder).read_text(encoding="utf-8"))
    generator = next(each["digest"] for each in report["policies"] if each["name"] == name)
    table = pl.read_parquet(_file(run, "completions", finder))
    counted = (
        table.filter(pl.col("generator") == generator)
        .group_by("problem_id", maintain_order=True)
        .agg(pl.col("verified").sum().alias("right"), pl.col("verified").count().alias("taken"))
        .filter(pl.col("taken") > 0)
    )
    return {problem: (int(right), int(taken)) for problem, right, taken in counted.rows()}


def _file(run: StageRun, role: str, finder: Finder) -> Path:
    record = next((each for each in run.outputs if each.role == role), None)
    if record is None:
        raise UserError(
            f"stage '{run.stage}' has no output '{role}', so no release can be decided by it; "
            "set release.evaluation to a stage that writes a report and completions"
        )
    found = finder.find(record.path, record.digest, record.md5)
    if found is None:
        raise UserError(
            f"{record.path} of run {run.run_id} ({record.digest[:12]}) is in neither the workspace "
            "nor the cache; dvc pull it, or evaluate that seed again"
        )
    return found
