"""Diagnostics of what evaluated policies wrote, by hand."""

import json
import math
from dataclasses import replace

import polars as pl
import pytest

from posttrain.data.schemas import COMPLETIONS, CURVE
from posttrain.data.tables import write_table
from posttrain.learning.rewards.components.self_report import SelfReportComponent
from posttrain.learning.rollouts.diagnostics.base import Seen
from posttrain.learning.rollouts.diagnostics.behavior_baseline import BehaviorBaseline
from posttrain.learning.rollouts.diagnostics.crossing import Crossing
from posttrain.learning.rollouts.diagnostics.dataset_coverage import DatasetCoverage
from posttrain.learning.rollouts.diagnostics.effective_horizon import EffectiveHorizon
from posttrain.learning.rollouts.diagnostics.frontier import Frontier
from posttrain.learning.rollouts.diagnostics.tampering import Tampering
from posttrain.stage.errors import UserError


@pytest.fixture
def seen(tmp_path):
    """An evaluation: of each policy and problem, texts with whether they are right (or null)."""

    def evaluated(**policies):
        rows = [
            {
                "problem_id": problem,
                "difficulty": 1,
                "prompt": problem,
                "text": text,
                "generator": name,
                "score": None if right is None else float(right),
                "verified": None if right is None else bool(right),
            }
            for name, problems in policies.items()
            for problem, samples in problems.items()
            for text, right in samples
        ]
        blank = {pl.String: "", pl.Int32: 1, pl.Float64: 1.0}
        filled = [
            {name: blank.get(kind, []) for name, kind in COMPLETIONS.items()} | r for r in rows
        ]
        table, report = tmp_path / "completions.parquet", tmp_path / "report.json"
        write_table(pl.DataFrame(filled, schema=COMPLETIONS), table, COMPLETIONS)
        named = [{"name": name, "digest": name} for name in policies]
        report.write_text(json.dumps({"policies": named}))
        return Seen(reports={"x": report}, completions={"x": table}, reference="base")

    return evaluated


def drawn(*right, text="a"):
    return [(f"{text}{place}", each) for place, each in enumerate(right)]


def test_curves_cross_where_the_gap_is_no_longer_positive(seen):
    """pass@k of c right of 4: c = 1: k/4; c = 2: 1/2, 5/6, 1; c = 4: 1.

    The policy solves p always and q never, the base each with one of 4 samples in the first two
    problems: gaps of (1 - k/4 + 0 - k/4) / 2 at k = 1, 2, 4: 1/4, 0, -1/2.
    """
    found = Crossing().diagnose(
        seen(
            base={"p": drawn(1, 0, 0, 0), "q": drawn(0, 0, 1, 0)},
            ours={"p": drawn(1, 1, 1, 1), "q": drawn(0, 0, 0, 0)},
        )
    )
    figures = found.figures["ours"]
    assert [figures[f"gap_{k}"] for k in (1, 2, 4)] == pytest.approx([0.25, 0.0, -0.5])
    assert figures["crossing"] == 2
    # A resample has p twice (1/4, never behind: 1 - k/4 > 0 but 0 at 4), both, or q twice (never
    # ahead): half of all have both, and cross at 2; a quarter crosses at 4; a quarter is beyond.
    assert figures["crosses"] == pytest.approx(0.75, abs=0.06)
    assert (figures["crossing_low"], figures["crossing_high"]) == (2, 8)
    assert (figures["only_it"], figures["only_reference"]) == (0, 1)
    assert found.lists["only_base_beside_ours"] == ["q"]
    base, ours = found.lines
    assert (list(base.x), list(base.y)) == ([1, 2, 4], pytest.approx([0.25, 0.5, 1.0]))
    assert list(ours.y) == [0.5, 0.5, 0.5]


def test_a_policy_that_stays_ahead_crosses_nowhere(seen):
    ahead = Crossing().diagnose(
        seen(base={"p": drawn(0, 0), "q": drawn(0, 0)}, ours={"p": drawn(1, 0), "q": drawn(1, 1)})
    )
    assert "crossing" not in ahead.figures["ours"]
    assert ahead.figures["ours"]["crosses"] == 0
    assert ahead.figures["ours"]["only_it"] == 2


def test_a_problem_that_was_not_judged_whole_counts_for_nobody(seen):
    found = BehaviorBaseline().diagnose(
        seen(
            base={"p": drawn(0, 1), "q": drawn(0, 0), "r": drawn(1, None)},
            ours={"p": drawn(1, 1), "q": drawn(0, 1), "r": drawn(0, 0)},
        )
    )
    # 1/2 better on both: no spread, so that the interval is that value; 3/4 were left to gain.
    figures = found.figures["ours"]
    assert figures["gain"] == figures["gain_low"] == figures["gain_high"] == 0.5
    assert (figures["normalized"], figures["beats"]) == (pytest.approx(2 / 3), 1)


def test_state_action_pairs_are_counted_once(seen):
    """ "ab" and "ac" share the pair that writes a: 3 characters and 2 ends; "ab" alone: 2 and 1."""
    found = DatasetCoverage().diagnose(
        seen(base={"p": [("ab", 1), ("ac", 0)]}, ours={"p": [("ab", 1), ("ab", 1)]})
    )
    assert found.figures["base"] == {"state_actions": 5, "saco": 1, "tq": 0.5}
    assert found.figures["ours"] == {"state_actions": 3, "saco": 3 / 5, "tq": 1}


def test_the_horizon_is_the_log_of_the_gap_along_the_greedy_path(seen):
    """At p the branch a earns 3/4 and b 1/4; below a, x earns 1 and y 1/2: the least lead is 1/2.

    At q all is equal and right, so that nothing has to be told apart; at r nothing is right.
    """
    base = {
        "p": [("ax", 1), ("ax", 1), ("ay", 1), ("ay", 0), ("b", 0), ("b", 0), ("b", 1), ("b", 0)],
        "q": drawn(*[1] * 8),
        "r": drawn(*[0] * 8),
    }
    ours = {"p": drawn(*[1] * 4, *[0] * 4), "q": drawn(*[1] * 8), "r": drawn(*[0] * 8)}
    found = EffectiveHorizon(actions=2).diagnose(seen(base=base, ours=ours))
    # Horizons 3, 1 and infinite: 1 + log_2(1 / (1/2)^2) = 3.
    assert found.figures["base"] == {"solvable": 2 / 3, "horizon": 3}
    assert found.figures["ours"] == {"foretold": pytest.approx(-1.0)}
    longer = EffectiveHorizon(actions=4).diagnose(seen(base=base, ours=ours))
    assert longer.figures["base"]["horizon"] == pytest.approx(1 + math.log(4, 4))


def test_an_evaluation_without_samples_or_reference_is_refused(seen):
    whole = seen(ours={"p": drawn(1)})
    with pytest.raises(UserError, match="'base' was not evaluated; there are ours"):
        BehaviorBaseline().diagnose(whole)
    with pytest.raises(UserError, match=r"connect completions\.x"):
        BehaviorBaseline().diagnose(Seen(reports=whole.reports, reference="ours"))


def test_the_best_of_n_is_held_against_a_policy_at_its_divergence(seen, tmp_path):
    """pass@1 and pass@2 of one right of two are 1/2 and 1; best of 2 diverges by ln 2 - 1/2.

    Half of that, 0.0966 nats an answer, would earn 3/4 with the base's samples; ours earns 1/2.
    """
    whole = seen(
        base={"p": drawn(1, 0), "q": drawn(0, 1)}, ours={"p": drawn(1, 1), "q": drawn(0, 0)}
    )
    half = (math.log(2) - 0.5) / 2
    table = {"metric": ["rl/kl", "rl/length"], "value": [half / 10, 10.0], "step": [1, 1]}
    curve = tmp_path / "curve.parquet"
    write_table(pl.DataFrame(table).select([*CURVE]), curve, CURVE)
    found = Frontier().diagnose(replace(whole, curves={"ours": curve, "other": curve}))
    assert found.figures == {
        "ours": pytest.approx({"divergence": half, "earned": 0.5, "best_of_n": 0.75, "off": -0.25})
    }
    far = pl.DataFrame(table).with_columns(value=pl.Series([1.0, 1.0])).select([*CURVE])
    write_table(far, curve, CURVE)
    found = Frontier().diagnose(replace(whole, curves={"ours": curve}))
    assert found.figures["ours"] == {"divergence": 1.0, "earned": 0.5}


def test_texts_that_give_themselves_a_high_score_are_counted(seen):
    texts = [("Score: 1", 0), ("score: 0.9", 1), ("score: .5\nscore: 0.2", 1), ("none", 0)]
    found = Tampering().diagnose(seen(base={"p": texts}))
    assert found.figures["base"] == pytest.approx(
        {"high": 0.5, "high_and_wrong": 0.25, "reported": 2.1 / 4, "excess": 0.1 / 4}
    )
    # What is above 1 is 1, and what is no number says nothing.
    reads = SelfReportComponent(pattern=r"score: (\S+)")
    assert [reads.reported(f"score: {each}") for each in ("7", "0.25", "high")] == [1, 0.25, 0]
    with pytest.raises(UserError, match="must have one group, the score, but has 0"):
        SelfReportComponent.parse({"pattern": "score"}, where="said")
