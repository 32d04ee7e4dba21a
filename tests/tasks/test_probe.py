"""The probe: attempts, verdicts, solve rates, and which problems are attempted."""

import math

import polars as pl
import pytest

from posttrain.data.schemas import COMPLETIONS, SOLVE_RATES, problems_table
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.record import remember_lengths
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import even_share, run, solve_rates


def probe(guesser, coins_path, folder, **config):
    folder.mkdir()
    outputs = {name: folder / f"{name}.parquet" for name in ("samples", "solve_rates")}
    metrics = run(
        ProbeConfig(**{"num_samples": 6, "max_tokens": 8, **config}),
        {"policy": guesser, "problems": coins_path},
        outputs,
        StageContext.quiet(folder / "scratch"),
    )
    return (
        read_table(outputs["samples"], COMPLETIONS),
        read_table(outputs["solve_rates"], SOLVE_RATES),
        metrics,
    )


@pytest.fixture(scope="module")
def probed(guesser, coins_path, tmp_path_factory):
    return probe(guesser, coins_path, tmp_path_factory.mktemp("probe") / "a")


def test_every_sample_has_its_verdict(probed, coins, guesser):
    samples, _, _ = probed
    assert samples["problem_id"].to_list() == [p.id for p in coins for _ in range(6)]
    answers = {problem.id: problem.answer for problem in coins}
    for row in samples.iter_rows(named=True):
        assert row["verified"] == (row["text"].strip() == f"#### {answers[row['problem_id']]}")
        assert row["score"] == float(row["verified"])
    assert set(samples["generator"]) == {weights_digest(load_policy(guesser).model)}


def test_rates_count_the_samples(probed, coins):
    samples, rates, metrics = probed
    assert rates["problem_id"].to_list() == [problem.id for problem in coins]
    assert rates["source"].to_list() == [problem.source for problem in coins]
    for row in rates.iter_rows(named=True):
        own = samples.filter(problem_id=row["problem_id"])
        assert row["attempts"] == 6
        assert row["solved"] == own["verified"].sum()
        assert row["solve_rate"] == row["solved"] / 6
        assert set(row["parents"]) == set(own["id"])
        assert row["low"] <= row["solve_rate"] <= row["high"]
    # What the teacher taught: 240 tosses, 0.67 +- 0.03; five deviations.
    assert abs(metrics["probe/solve_rate"] - 2 / 3) < 0.16
    mixed = sum(0 < solved < 6 for solved in rates["solved"])
    assert metrics["probe/share_with_signal"] == pytest.approx(mixed / 40)
    assert metrics["probe/truncation_rate"] < 0.1


def test_a_limit_that_cuts_what_was_taught_is_refused(guesser, coins_path, tmp_path):
    policy = load_policy(guesser)
    remember_lengths(policy.model, [4, 4, 4, 9], ["up"] * 4)
    save_policy(policy.model, policy.tokenizer, tmp_path / "policy")
    with pytest.raises(UserError, match="90% of the answers of up .* longer than max_tokens 3"):
        probe(tmp_path / "policy", coins_path, tmp_path / "a", max_tokens=3)
    # Nine tokens and a quarter, in eights: 16, and every answer ends before.
    _, _, metrics = probe(tmp_path / "policy", coins_path, tmp_path / "b", max_tokens="auto")
    assert metrics["probe/truncation_rate"] < 0.1


def test_wilson_by_hand():
    """3 of 4: (3 + z^2 / 2) / (4 + z^2), with z = 1.96, +- z sqrt(3/4 + z^2 / 4) / (4 + z^2)."""
    samples = pl.DataFrame(
        {
            "id": ["a", "b", "b", "c"],
            "problem_id": ["p"] * 4,
            "source": ["s"] * 4,
            "difficulty": [1] * 4,
            "verified": [True, True, True, False],
        },
        schema_overrides={"difficulty": pl.Int32},
    )
    row = solve_rates(samples, policy="x").row(0, named=True)
    z2 = 1.959964**2
    center, reach = (3 + z2 / 2) / (4 + z2), math.sqrt(z2 * (3 / 4 + z2 / 4)) / (4 + z2)
    assert row["low"] == pytest.approx(center - reach, abs=1e-6)
    assert row["high"] == pytest.approx(center + reach, abs=1e-6)
    assert row["parents"] == ["a", "b", "c"]
    assert (row["attempts"], row["solved"], row["policy"]) == (4, 3, "x")


def test_twice_the_same_bytes(guesser, coins_path, tmp_path):
    for name in ("a", "b"):
        probe(guesser, coins_path, tmp_path / name)
    for table in ("samples", "solve_rates"):
        first, second = (tmp_path / name / f"{table}.parquet" for name in ("a", "b"))
        assert first.read_bytes() == second.read_bytes()


def test_even_share_takes_from_every_stratum_and_keeps_the_order(coins):
    # 40 problems in 4 strata of 10; all of stratum (down, 1) but two are taken away.
    table = problems_table(
        [p for p in coins if (p.source, p.difficulty) != ("down", 1)] + coins[3:8:4]
    )
    chosen = even_share(table, 14, seed=0)
    counts = dict(
        chosen.group_by("source", "difficulty")
        .len()
        .select(pl.concat_str("source", "difficulty"), "len")
        .iter_rows()
    )
    assert counts == {"up0": 4, "up1": 4, "down0": 4, "down1": 2}
    places = [table["id"].to_list().index(problem_id) for problem_id in chosen["id"]]
    assert places == sorted(places)
    assert even_share(table, 14, seed=0).equals(chosen)
    assert not even_share(table, 14, seed=1).equals(chosen)
    assert even_share(table, None, seed=0).equals(table)
    assert even_share(table, 99, seed=0).equals(table)


def test_at_temperature_0_every_problem_is_attempted_once_and_alike(guesser, coins_path, tmp_path):
    greedy = {"temperature": 0, "num_samples": 1}
    samples, rates, _ = probe(guesser, coins_path, tmp_path / "a", **greedy)
    assert ProbeConfig(temperature=0).num_samples == 1
    assert set(rates["attempts"]) == {1}
    assert set(rates["solve_rate"]) <= {0.0, 1.0}
    # The policy guesses between two answers; which it finds likelier no longer hangs on a draw.
    again, _, _ = probe(guesser, coins_path, tmp_path / "b", **greedy)
    assert again.equals(samples)


def test_a_search_counts_what_a_problem_took(guesser, coins_path, coins, tmp_path):
    search = {"kind": "tree", "iterations": 5, "children": 2}
    made = [probe(guesser, coins_path, tmp_path / name, search=search) for name in ("a", "b")]
    (samples, rates, metrics), again = made
    assert again[0].equals(samples)
    assert again[1].equals(rates)
    assert rates["problem_id"].to_list() == [problem.id for problem in coins]
    for row in rates.iter_rows(named=True):
        own = samples.filter(problem_id=row["problem_id"])["verified"].to_list()
        assert len(own) == row["attempts"]
        # The first right answer ends it.
        assert row["solved"] == sum(own)
        assert row["attempts"] == 5 or own == [False] * (len(own) - 1) + [True]
    assert metrics["probe/solve_rate"] == pytest.approx(rates["solve_rate"].mean())


def test_a_search_is_of_answers_that_nobody_answers():
    with pytest.raises(UserError, match="no second try or turn follows it"):
        ProbeConfig.parse({"search": "tree", "guidance": ["plan"]}, where="probe")
