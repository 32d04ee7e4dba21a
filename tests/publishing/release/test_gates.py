"""Gates on what is there: each passes the release as it is, and not with one thing wrong."""

import random
import sys
from dataclasses import replace

import polars as pl
import pytest

from posttrain.provenance.ledger import Conflict, Verification
from posttrain.publishing.release.candidate import check_gates
from posttrain.publishing.release.config import (
    LimitGate,
    NoRegressionGate,
    ReproducibilityGate,
    SchemaGate,
)
from posttrain.publishing.release.gates import integrity
from posttrain.publishing.release.names import parse_tag
from posttrain.publishing.release.results import Results
from posttrain.stage.errors import UserError

pytestmark = pytest.mark.slow


@pytest.fixture
def project(released, tmp_path):
    saved = list(sys.path)
    copy = released.project.copy(tmp_path / "copy")
    copy.commit("third")
    yield copy
    sys.path[:] = saved


@pytest.fixture
def evidence(project):
    with project.session() as session:
        candidate = check_gates(session, parse_tag("mini@v9.0.0"))
        assert all(verdict.passed for _, verdict in candidate.decided)
        found = candidate.evidence
        # The bytes of the workspace, whatever they are: digests are not what is tested here.
        object.__setattr__(found, "find", lambda record: project.root / record.path)
        yield found


def test_only_evaluations_of_exactly_this_policy_count(project):
    """Two seeds of the policies before it are there, and one of the new one."""
    project.edit("sft: {steps: 3", "sft: {steps: 4")
    project.run()
    project.commit("other bytes")
    with pytest.raises(UserError, match="was evaluated with 1 of 2 seeds"):
        project.create("mini")


def test_a_table_of_another_schema_or_with_gaps_fails(evidence, project):
    gate = SchemaGate(name="s", kind="schema")
    path = project.root / "data/synthesize/traces.parquet"
    table = pl.read_parquet(path)
    for wrong in (
        table.rename({"prompt": "question"}),
        table.with_columns(pl.lit(None, dtype=pl.String).alias("prompt")),
        table.head(1),
    ):
        wrong.write_parquet(path)
        verdict = gate.check(evidence)
        assert not verdict.passed
        assert verdict.remedy.startswith("data/synthesize/traces.parquet: ")
    for whole in (table.with_columns(pl.lit(None, dtype=pl.Float64).alias("score")), table):
        # A score may be missing: that says that nothing could judge the text.
        whole.write_parquet(path)
        assert gate.check(evidence).passed
    (project.root / "data/evaluate/report.json").write_text("{")
    assert "data/evaluate/report.json" in gate.check(evidence).remedy


class Ledger:
    """The ledger, but for what it says of conflicts and verifications."""

    def __init__(self, real, conflicts=(), verified=None):
        self.real, self.store, self.verified = real, list(conflicts), verified or {}
        self.annotations = self

    def verifications_of(self, _keys):
        return self.verified

    def every_stage_run(self):
        return self.real.every_stage_run()


def test_a_level_is_reached_only_without_a_finding_against_it(evidence, monkeypatch):
    real = integrity.conflicts
    monkeypatch.setattr(
        integrity,
        "conflicts",
        lambda store, keys: store if isinstance(store, list) else real(store, keys),
    )

    def judged(ledger=None, **settings):
        gate = ReproducibilityGate(name="r", kind="reproducibility", **settings)
        return gate.check(replace(evidence, ledger=ledger or evidence.ledger))

    run = next(each for each in evidence.chain.stages if each.stage == "sft")
    assert judged(level="L0").passed
    twice = judged(level="L0", executions=2)
    assert "was executed 1 times" in twice.remedy
    conflict = Conflict(run.key, "sft", (run, run))
    assert "'sft' made different bytes" in judged(Ledger(evidence.ledger, [conflict])).remedy
    assert judged(portable=True).passed
    own = [replace(each, circumstances={"kernels": "own"}) for each in evidence.chain.stages]
    elsewhere = replace(evidence, chain=replace(evidence.chain, stages=tuple(own)))
    gate = ReproducibilityGate(name="r", kind="reproducibility", portable=True)
    refused = gate.check(elsewhere)
    assert "ran with kernels of one processor" in refused.remedy
    assert not gate.passes(refused.figures)
    assert not gate.passes({"refuted": 0.0, "fewest_executions": 1.0})
    refuted = {run.key: [Verification(run.id, "L0", holds=False, verified=1.0)]}
    assert "did not hold" in judged(Ledger(evidence.ledger, verified=refuted)).remedy
    weaker = evidence.chain.recipe.run.model_copy(update={"level": "L3"})
    chain = replace(evidence.chain, recipe=replace(evidence.chain.recipe, run=weaker))
    gate = ReproducibilityGate(name="r", kind="reproducibility", level="L0")
    assert "set run.level to L0" in gate.check(replace(evidence, chain=chain)).remedy


def test_a_limit_never_judges_an_estimate(evidence):
    for metric in ("evaluate/sft/pass_at_1", "evaluate/sft/best_of_2"):
        gate = LimitGate(name="l", kind="limit", metric=metric, at_least=0.0)
        assert "use kind: threshold" in gate.check(evidence).remedy
    gate = LimitGate(name="l", kind="limit", metric="sft/nothing", at_most=1.0)
    assert "no stage recorded sft/nothing; there are " in gate.check(evidence).remedy


def test_a_regression_of_the_tolerance_passes_at_most_as_often_as_alpha():
    """A policy that is worse by exactly what is tolerated, 500 times over 40 problems."""
    chance, passed = random.Random(20261121), 0
    gate = NoRegressionGate(name="n", kind="no_regression", tolerance=0.1)

    def drawn(rates):
        counts = {
            f"{place:03}": (sum(chance.random() < rate for _ in range(4)), 4)
            for place, rate in enumerate(rates)
        }
        return Results("policy", {"problems": "p"}, {"0": counts})

    for _ in range(500):
        rates = [chance.uniform(0.1, 1.0) for _ in range(40)]
        worse = [rate - 0.1 for rate in rates]
        passed += gate.decide(drawn(worse), drawn(rates)).passed
    assert passed / 500 <= 0.05
