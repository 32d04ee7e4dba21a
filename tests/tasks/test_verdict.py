"""A verdict says what the claim said beforehand, or that it could not be tested, and why."""

import json

import polars as pl
import pytest

from posttrain.data.schemas import COMPLETIONS, CURVE
from posttrain.data.tables import write_table
from posttrain.pipeline.claim_metrics import metrics_of_evaluation
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.evaluate.config import EvaluateConfig
from tasks.verdict.config import VerdictConfig
from tasks.verdict.measured import Measured
from tasks.verdict.stage import run

HIGHER = {"metric": "pass_at_1", "is": "higher", "margin": 0.05}


def policy(name, rate, length=20.0):
    return {
        "name": name,
        "digest": f"digest of {name}",
        "pass_at": [{"k": 1, "value": rate}, {"k": 8, "value": 1.0}],
        "best_of": [],
        "majority": {"k": 8, "value": rate},
        "mean_length": length,
        "truncation_rate": 0.0,
        "format_rate": 1.0,
    }


def completions(rates, texts=None):
    """Ten samples of each of two problems; each policy is right at its rate.

    With `texts`, a right and a wrong one of each policy.
    """
    empty = {pl.String: "", pl.Int32: 1, pl.Float64: 1.0, pl.Boolean: True}
    blank = {name: empty.get(kind, []) for name, kind in COMPLETIONS.items()}
    rows = [
        blank
        | {
            "row_id": f"{name}{problem}{sample}",
            "problem_id": str(problem),
            "generator": f"digest of {name}",
            "verified": sample < round(10 * rate),
            "text": (texts or {}).get(name, ("", ""))[sample >= round(10 * rate)],
        }
        for name, rate in rates.items()
        for problem in range(2)
        for sample in range(10)
    ]
    columns = {name: [row[name] for row in rows] for name in COMPLETIONS}
    return pl.DataFrame(columns, schema=COMPLETIONS)


@pytest.fixture
def judge(tmp_path):
    """Decide on arms `ours` and `theirs`: pass@1 of each seed, and what their curves hold."""

    def decide(ours, theirs, *, curves=None, base=0.5, lengths=(20.0, 20.0), texts=None, **config):
        inputs = {}
        for n, pair in enumerate(zip(ours, theirs, strict=True), start=1):
            rates = dict(zip(("ours", "theirs"), pair, strict=True)) | {"sft": base}
            told = [policy("ours", pair[0], lengths[0]), policy("theirs", pair[1], lengths[1])]
            inputs[f"reports.seed_{n}"] = tmp_path / f"report_{n}.json"
            inputs[f"reports.seed_{n}"].write_text(
                json.dumps({"policies": [policy("sft", base), *told]})
            )
            inputs[f"completions.seed_{n}"] = tmp_path / f"completions_{n}.parquet"
            write_table(completions(rates, texts), inputs[f"completions.seed_{n}"], COMPLETIONS)
            for arm in ("ours", "theirs"):
                measured = {"rl/rollouts_drawn": [8.0, 8.0], **(curves or {}).get(arm, {})}
                rows = [
                    {"step": step, "metric": metric, "value": value}
                    for metric, values in measured.items()
                    for step, value in enumerate(values, start=1)
                ]
                inputs[f"curves.{arm}_{n}"] = tmp_path / f"{arm}_{n}.parquet"
                write_table(pl.DataFrame(rows, schema=CURVE), inputs[f"curves.{arm}_{n}"], CURVE)
        said = {"method": "m", "claim": "c", "arms": ["ours", "theirs"], "decide": [HIGHER]}
        outputs = {"verdict": tmp_path / "verdict.json"}
        metrics = run(
            VerdictConfig.parse({**said, "seeds": len(ours), **config}, where="verdict"),
            inputs,
            outputs,
            StageContext.quiet(tmp_path / "scratch"),
        )
        verdict = json.loads(outputs["verdict"].read_text())
        assert metrics == {
            f"verdict/{each}": float(each == verdict["verdict"])
            for each in ("confirmed", "refuted", "undecided", "void")
        }
        return verdict

    return decide


def test_a_claim_is_confirmed_refuted_or_undecided_with_the_seeds_that_would_do(judge):
    confirmed = judge([0.6, 0.7, 0.6], [0.4, 0.5, 0.4])
    assert confirmed["verdict"] == "confirmed"
    assert confirmed["sentence"] == (
        "confirmed: pass_at_1 0.6333 against 0.4333 of theirs, difference +0.2 [+0.2, +0.2],"
        " higher by 0.05: confirmed; 3 seeds"
    )
    assert judge([0.4, 0.5, 0.4], [0.4, 0.5, 0.4])["verdict"] == "refuted"
    undecided = judge([0.6, 0.4, 0.6], [0.4, 0.5, 0.4])
    # Differences 0.2, -0.1, 0.2: mean 0.1, deviation 0.1732, and 0.05 from the margin.
    assert undecided["verdict"] == "undecided"
    assert undecided["decisions"][0]["seeds_enough"] == 49
    assert undecided["sentence"].endswith(
        "3 seeds; 49 seeds would be enough if they differ as these do"
    )
    # Equal within 0.15: the nearer edge is 0.05 away as well, and the farther one decides nothing.
    equal = {"metric": "pass_at_1", "is": "equal", "margin": 0.15}
    undecided = judge([0.6, 0.4, 0.6], [0.4, 0.5, 0.4], decide=[equal])
    assert undecided["decisions"][0]["seeds_enough"] == 49


def test_the_interval_over_problems_stands_beside(judge):
    found = judge([0.6, 0.6], [0.4, 0.4])["decisions"][0]
    # Both problems differ by 0.2 at both seeds: no resampling of them gives another mean.
    assert found["over_problems"] == {"low": pytest.approx(0.2), "high": pytest.approx(0.2)}


def test_several_decisions_hold_together(judge):
    shorter = {"metric": "mean_length", "is": "lower", "margin": 3}
    both = judge([0.6] * 3, [0.4] * 3, lengths=(12.0, 20.0), decide=[HIGHER, shorter])
    assert both["verdict"] == "confirmed"
    one = judge([0.6] * 3, [0.4] * 3, lengths=(19.0, 20.0), decide=[HIGHER, shorter])
    assert [each["outcome"] for each in one["decisions"]] == ["confirmed", "refuted"]
    assert one["verdict"] == "refuted"


def test_a_limit_takes_the_place_of_another_arm(judge):
    limit = {"metric": "mean_length", "is": "lower", "than": 18.0, "margin": 0.0}
    kept = judge([0.6, 0.6], [0.4, 0.4], lengths=(17.5, 20.0), decide=[limit])
    assert kept["sentence"] == (
        "confirmed: mean_length 17.5 against the number 18, difference -0.5 [-0.5, -0.5],"
        " lower by 0: confirmed; 2 seeds"
    )
    assert kept["decisions"][0]["against"] is None
    over = judge([0.6, 0.6], [0.4, 0.4], lengths=(18.5, 20.0), decide=[limit])
    assert over["verdict"] == "refuted"
    # Over problems there is nothing to pair a number with.
    sure = {"metric": "pass_at_1", "is": "higher", "than": 0.5, "margin": 0.0}
    assert judge([0.6, 0.6], [0.4, 0.4], decide=[sure])["decisions"][0]["over_problems"] is None


def test_an_arm_is_compared_with_the_base_that_it_began_from(judge):
    fallen = {"metric": "pass_at_1", "is": "lower", "against": "base", "margin": 0.02}
    verdict = judge([0.3, 0.4, 0.3], [0.6] * 3, base=0.5, decide=[fallen])
    # Differences -0.2, -0.1, -0.2.
    assert verdict["decisions"][0]["difference"] == pytest.approx(-1 / 6)
    assert "pass_at_1 0.3333 against 0.5 of sft" in verdict["sentence"]


def test_confidences_are_held_against_what_is_true(judge):
    """A right and a wrong text each; theirs is sure where it is right, and else states none."""
    texts = {
        "ours": ("#### 1\nConfidence: 0.8", "#### 2\nConfidence: 0.2"),
        "theirs": ("#### 1\nConfidence: 1", "#### 2"),
    }
    lower = {"is": "lower", "margin": 0.0}
    decide = [{"metric": metric, **lower} for metric in ("brier", "ece")]
    decided = judge([0.5, 0.5], [0.5, 0.5], texts=texts, decide=decide)["decisions"]
    # Ours is off by 0.2 everywhere. Of theirs half is right and sure; the other half counts as sure
    # of what is not so, in the bin of 1 with it, where half is right.
    assert decided[0]["ours"] == pytest.approx([0.04, 0.04])
    assert decided[0]["theirs"] == pytest.approx([0.5, 0.5])
    assert decided[1]["ours"] == pytest.approx([0.2, 0.2])
    assert decided[1]["theirs"] == pytest.approx([0.5, 0.5])
    stated = {"metric": "states_confidence", "is": "higher", "margin": 0.0}
    (found,) = judge([0.5, 0.5], [0.5, 0.5], texts=texts, decide=[stated])["decisions"]
    assert (found["ours"], found["theirs"]) == ([1.0, 1.0], [0.5, 0.5])


VOID = {
    "a base outside of its band": (
        {"contract": [{"metric": "pass_at_1", "at_least": 0.55, "at_most": 0.6}]},
        "the arena's base has pass_at_1 0.5, and at least 0.55 and at most 0.6 is asked",
    ),
    "a mechanism that did not act": (
        {
            "mechanism": [{"metric": "rl/clip_fraction", "at": "highest", "at_least": 0.01}],
            "curves": {"ours": {"rl/clip_fraction": [0.0, 0.002]}},
        },
        "the mechanism did not act: rl/clip_fraction (highest) is 0.002 at seed 1, and at least"
        " 0.01 is asked; the mechanism did not act: rl/clip_fraction (highest) is 0.002 at seed 2,"
        " and at least 0.01 is asked",
    ),
    "a figure that is no number": (
        {
            "mechanism": [{"metric": "rl/loss", "at_least": 0}],
            "curves": {"ours": {"rl/loss": [float("nan")]}},
        },
        "the mechanism did not act: rl/loss (mean) is nan at seed 1, and at least 0 is asked; the"
        " mechanism did not act: rl/loss (mean) is nan at seed 2, and at least 0 is asked",
    ),
    "arms of another size": (
        {"curves": {"theirs": {"rl/rollouts_drawn": [8.0, 9.0]}}},
        "the arms are not matched: ours took 32 rollouts and theirs 34",
    ),
}


def test_updates_are_counted_and_not_steps(judge):
    """Two steps in every curve, at two seeds."""
    per_step = {"ours": 3, "theirs": 1}
    verdict = judge([0.6, 0.6], [0.4, 0.4], matched="updates", updates_per_step=per_step)
    assert verdict["sentence"] == (
        "void: the arms are not matched: ours took 12 updates and theirs 4"
    )
    assert judge([0.6, 0.6], [0.4, 0.4], matched="updates")["verdict"] == "confirmed"


def test_an_amount_that_no_curve_says_is_equal_to_nothing(judge):
    with pytest.raises(UserError, match="the curve of ours has no rl/tokens_drawn"):
        judge([0.6, 0.6], [0.4, 0.4], matched="tokens")


@pytest.mark.parametrize(("settings", "why"), VOID.values(), ids=VOID)
def test_a_claim_that_was_not_tested_is_void(judge, settings, why):
    verdict = judge([0.6, 0.6], [0.4, 0.4], **settings)
    assert verdict["verdict"] == "void"
    assert verdict["sentence"] == f"void: {why}"


@pytest.mark.parametrize(
    ("at", "value"),
    [("mean", 2.0), ("first", 3.0), ("last", 2.0), ("highest", 3.0), ("change", -1.0)],
)
def test_a_check_looks_at_one_value_of_the_curve(judge, at, value):
    check = {"metric": "rl/yield", "at": at, "at_least": value, "at_most": value}
    curves = {"ours": {"rl/yield": [3.0, 1.0, 2.0]}}
    assert judge([0.6] * 2, [0.4] * 2, mechanism=[check], curves=curves)["verdict"] == "confirmed"


def test_a_number_that_changes_is_of_the_curve_whatever_its_path(judge):
    check = {"metric": "schedule/draw.temperature", "at": "change", "at_least": 0.3}
    curves = {"ours": {"schedule/draw.temperature": [0.5, 1.0]}}
    verdict = judge([0.6] * 2, [0.4] * 2, mechanism=[check], curves=curves)
    assert verdict["mechanism"][0]["values"] == [0.5, 0.5]


def test_what_was_measured_of_each_check_stands_beside_its_bounds(judge):
    """Two steps in the curve of each of two seeds; the base has 0.5 at both."""
    verdict = judge(
        [0.6, 0.6],
        [0.4, 0.4],
        contract=[{"metric": "pass_at_1", "at_least": 0.2, "at_most": 0.8}],
        mechanism=[
            {"metric": "rl/clip_fraction", "at_least": 0.01},
            {"metric": "rl/loss", "at": "last", "at_most": 0.5},
        ],
        curves={"ours": {"rl/clip_fraction": [0.01, 0.03], "rl/loss": [1.0, float("inf")]}},
    )
    assert verdict["contract"] == [
        {
            "metric": "pass_at_1",
            "at": None,
            "values": [0.5],
            "asked": "at least 0.2 and at most 0.8",
            "holds": True,
        }
    ]
    clipped, loss = verdict["mechanism"]
    assert clipped == {
        "metric": "rl/clip_fraction",
        "at": "mean",
        "values": pytest.approx([0.02, 0.02]),
        "asked": "at least 0.01",
        "holds": True,
    }
    assert (loss["at"], loss["values"], loss["holds"]) == ("last", [None, None], False)


def test_a_run_alone_says_nothing_of_spread(judge):
    limit = {"metric": "mean_length", "is": "lower", "margin": 2, "than": 24}
    found = judge([0.6], [0.4], decide=[HIGHER, limit])
    assert found["verdict"] == "undecided"
    assert found["sentence"] == (
        "one run of each arm says nothing of spread, so nothing is decided:"
        " pass_at_1 0.6 against 0.4 of theirs, difference +0.2, higher by 0.05;"
        " mean_length 20 against the number 24, difference -4, lower by 2"
    )


def test_a_metric_that_is_none_is_one_sentence(judge):
    with pytest.raises(UserError, match="has no pass_at_2; take one of pass_at_1, pass_at_8"):
        judge([0.6] * 2, [0.4] * 2, decide=[{**HIGHER, "metric": "pass_at_2"}])
    with pytest.raises(UserError, match="the curve of ours has no rl/rewards"):
        judge([0.6] * 2, [0.4] * 2, decide=[{**HIGHER, "metric": "rl/rewards"}])


def test_the_metrics_that_a_claim_may_name_are_those_that_a_verdict_reads():
    """And no other: what it names where one is unknown is what is listed."""
    config = EvaluateConfig(num_samples=8, pass_at=(8,))
    estimate = {"value": 1.0}
    graded = policy("ours", 0.5) | {
        "best_of": [{"k": k, "value": 1.0} for k in (1, 8)],
        "episodes": {"score": estimate, "turns": estimate, "facts": {}},
    }
    measured = Measured([{"ours": graded}], [completions({"ours": 0.5})], {})
    listed = metrics_of_evaluation(config)
    assert all(isinstance(measured.value(name, "ours", 0), float) for name in listed)
    with pytest.raises(UserError) as unknown:
        measured.value("none", "ours", 0)
    assert {*str(unknown.value).partition("take one of ")[2].split(", ")} == {*listed}


def test_what_episodes_earned_and_what_was_counted_may_decide():
    episodes = {
        "score": {"value": 0.4},
        "turns": {"value": 3.0},
        "facts": {"regret": {"value": 1.5}},
    }
    played = {**policy("played", 0.0), "episodes": episodes}
    unjudged = {**policy("unjudged", 0.0), "episodes": episodes | {"score": None}}
    measured = Measured(
        [{"played": played, "unjudged": unjudged, "said": policy("said", 0)}], [], {}
    )
    found = [measured.value(name, "played", 0) for name in ("score", "turns", "regret")]
    assert found == [0.4, 3.0, 1.5]
    for name in ("unjudged", "said"):
        with pytest.raises(UserError, match="has no score; take one of"):
            measured.value("score", name, 0)
