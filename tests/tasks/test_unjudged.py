"""An answer that could not be judged is neither right nor wrong, wherever answers are counted."""

import polars as pl
import pytest

from posttrain.data.filters.base import FilterInputs
from posttrain.data.filters.verified import VerifiedFilter
from posttrain.data.pair_builders.registry import PAIR_BUILDERS
from posttrain.data.pairs import build_pairs
from posttrain.data.schemas import COMPLETIONS, Problem, completions_table
from posttrain.data.tables import read_table, write_table
from posttrain.learning.episodes.episode import Span
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rewards.score import Score
from posttrain.learning.rl.metrics import describe
from posttrain.learning.rl.rollout import Rollout
from posttrain.learning.rollouts.engines.base import FinishReason, Sample
from posttrain.learning.rollouts.scoring import ScoredSample, share_unjudged
from posttrain.stage.errors import UserError
from tasks.evaluate.tally import judged_by_all, tally
from tasks.probe.stage import solve_rates

RIGHT, WRONG = Score(1.0, "correct"), Score(0.0, "wrong_answer")
LOST = Score(None, "no_grade")


def made(name, *scores):
    problem = Problem("own", name, "1", 1, "judge")
    samples = (
        Sample(problem.id, index, (5, 2), (-1.0, -1.0), f"{name}{index}", FinishReason.STOP, 0)
        for index in range(len(scores))
    )
    return [ScoredSample(problem, *each) for each in zip(samples, scores, strict=True)]


@pytest.fixture
def completions():
    """Of the first problem one of three could not be judged, of the second none could."""
    rows = [*made("a", RIGHT, LOST, WRONG), *made("b", LOST, LOST)]
    return completions_table([row.completion("policy") for row in rows])


def test_a_table_holds_nulls_and_says_why(completions, tmp_path):
    table = completions.with_columns(id=pl.col("text"))
    write_table(table, tmp_path / "c.parquet", COMPLETIONS)
    read = read_table(tmp_path / "c.parquet", COMPLETIONS)
    assert read["score"].to_list() == [1.0, None, 0.0, None, None]
    assert read["verified"].to_list() == [True, None, False, None, None]
    assert read["reason"].to_list()[1] == "no_grade"
    gaps = table.with_columns(pl.lit(None, pl.String).alias("text"))
    with pytest.raises(ValueError, match="column 'text' holds 5 nulls"):
        write_table(gaps, tmp_path / "c.parquet", COMPLETIONS)


def test_a_solve_rate_counts_those_that_were_judged(completions):
    """One of two; the second problem was not probed at all."""
    rates = solve_rates(completions.with_columns(id=pl.col("text")), policy="p")
    assert rates["problem_id"].to_list() == completions["problem_id"].to_list()[:1]
    assert rates.select("attempts", "solved", "solve_rate").rows() == [(2, 1, 0.5)]


def test_a_probe_of_which_nothing_was_judged_is_refused(completions):
    with pytest.raises(UserError, match="no answer could be judged"):
        solve_rates(completions.with_columns(id=pl.col("text")).tail(2), policy="p")


@pytest.mark.parametrize("builder", ["verifier", "best_worst", "length_balanced"])
def test_it_is_on_neither_side_of_a_pair(completions, builder):
    pairs = build_pairs(
        completions.with_columns(id=pl.col("text")),
        builder=PAIR_BUILDERS.parse(builder),
        pairs_per_problem=8,
        heldout_fraction=0.5,
        seed=0,
    )
    assert set(pairs["chosen"]) <= {"a0"}
    assert set(pairs["rejected"]) <= {"a2"}


def test_it_is_no_trace_to_train_on(completions):
    found = VerifiedFilter().reasons(completions, FilterInputs(completions))
    assert found["reason"].to_list() == ["", "no_grade", "wrong_answer", "no_grade", "no_grade"]


def test_a_large_share_of_samples_without_a_judgment_is_told_with_its_reasons():
    cut = Score(None, "cut_off")
    notes = []
    assert share_unjudged(made("a", RIGHT, LOST, cut, LOST), of="it", note=notes.append) == 0.75
    (told,) = notes
    assert told.startswith("75% of the samples of it could not be judged (2 no_grade, 1 cut_off);")
    # One of ten is what happens.
    few = made("a", LOST, *[RIGHT] * 9)
    assert share_unjudged(few, of="it", note=notes.append) == 0.1
    assert share_unjudged(made("a", WRONG), of="it", note=notes.append) == 0.0
    assert len(notes) == 1


def counted(name, *scores):
    groups = [made(problem, *given) for problem, given in zip("abc", scores, strict=True)]
    flat = [each for group in groups for each in group]
    model = build_llama(train_tokenizer(["1"], vocab_size=260), hidden=8, layers=1, heads=1, seed=0)
    return tally(name, model, flat, num_samples=2, reward_model=None)


def test_policies_are_compared_on_problems_that_were_judged_of_both():
    one = counted("one", (RIGHT, RIGHT), (RIGHT, LOST), (WRONG, RIGHT))
    two = counted("two", (RIGHT, WRONG), (RIGHT, RIGHT), (RIGHT, RIGHT))
    first, second = judged_by_all([one, two])
    assert [problem.prompt for problem in first.problems] == ["a", "c"]
    assert first.solve_rate_P.tolist() == [1.0, 0.5]
    assert second.solve_rate_P.tolist() == [0.5, 1.0]
    assert judged_by_all([two, two]) == [two, two]
    with pytest.raises(UserError, match="every problem has a sample that could not be judged"):
        judged_by_all([counted("three", (LOST, LOST), (LOST, RIGHT), (LOST, LOST))])


def rollout(group, reward):
    return Rollout(
        problem_id=f"p{group}",
        source="own",
        group=group,
        episode=f"p{group}/0",
        token_ids=(1, 5, 2),
        spans=(Span(0, 1, 0, drawn=False), Span(1, 3, 0, drawn=True)),
        logprobs=(-1.0, -1.0),
        versions=(0,),
        end="over",
        text="",
        reward=reward,
        solved=None if reward is None else reward >= 1,
    )


def test_metrics_of_a_step_leave_it_out_and_count_it():
    """Rewards 1, none, 0 and none, none: their mean is 1/2, three of five are unjudged."""
    groups = [[rollout(0, 1.0), rollout(0, None), rollout(0, 0.0)], [rollout(1, None)] * 2]
    found = describe(groups, informative=[True, False])
    assert found["reward"] == 0.5
    assert found["unjudged"] == 3 / 5
    # Of the group that was judged at all, not all are right and one is.
    assert (found["all_solved"], found["none_solved"]) == (0.0, 0.0)
    # Nothing was judged: there is no reward, rather than one of 0.
    assert "reward" not in describe(groups[1:], informative=[False])
    assert "unjudged" not in describe([[rollout(0, 1.0)]], informative=[True])
