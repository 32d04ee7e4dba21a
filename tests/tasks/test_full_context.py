"""Prompts that fill a policy's context: cut off where answers are counted, not practiced on."""

import pytest

from posttrain.data.schemas import (
    COMPLETIONS,
    IDENTITY,
    PROBLEMS,
    SOLVE_RATES,
    Problem,
    problems_table,
    with_row_ids,
)
from posttrain.data.tables import read_table, write_table
from posttrain.learning.curriculum.base import ProblemPool
from posttrain.learning.curriculum.start import with_room
from posttrain.learning.models.load import load_policy
from posttrain.learning.models.reward_head import save_reward_model, start_reward_model
from posttrain.learning.rollouts.scoring import make_prompts
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.evaluate.config import EvaluateConfig
from tasks.evaluate.report import read_report
from tasks.evaluate.stage import run as evaluate
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe

FOR_PROBLEMS = IDENTITY["problems"]
LONG = Problem("up", "up " * 80 + "=", "1", 0, "exact")
"""The guesser attends to 64 tokens."""


@pytest.fixture(scope="module")
def with_long(tmp_path_factory, coins):
    """The problems with a long one among them, as a table and as its file."""
    table = with_row_ids(problems_table([*coins[:7], LONG, *coins[7:]]), FOR_PROBLEMS)
    path = tmp_path_factory.mktemp("long") / "problems.parquet"
    write_table(table, path, PROBLEMS)
    return table, path


@pytest.fixture
def heard(tmp_path):
    """A context, and the sentences that it was told."""
    context, told = StageContext.quiet(tmp_path / "scratch"), []
    object.__setattr__(context, "note", told.append)
    return context, told


def test_a_probe_counts_it_as_cut_off_and_leaves_the_others_as_they_are(
    guesser, coins, coins_path, with_long, heard, tmp_path
):
    config = ProbeConfig(num_samples=3, max_tokens=8)
    context, told = heard
    found = {}
    for name, problems in (("all", with_long[1]), ("short", coins_path)):
        outputs = {each: tmp_path / f"{name}_{each}" for each in ("samples", "solve_rates")}
        probe(config, {"policy": guesser, "problems": problems}, outputs, context)
        found[name] = (
            read_table(outputs["samples"], COMPLETIONS),
            read_table(outputs["solve_rates"], SOLVE_RATES),
        )
    samples, rates = found["all"]
    assert samples.filter(problem_id=LONG.id)["text"].to_list() == ["", "", ""]
    (row,) = rates.filter(problem_id=LONG.id).iter_rows(named=True)
    assert (row["attempts"], row["solved"]) == (3, 0)
    assert len(rates) == len(coins) + 1
    # What the others draw hangs on themselves alone.
    others = samples.filter(samples["problem_id"] != LONG.id)
    assert others["text"].to_list() == found["short"][0]["text"].to_list()
    (sentence,) = (each for each in told if "no room" in each)
    assert sentence.startswith(
        "1 of 41 prompts leave no room for an answer in the 64 tokens of the context of the policy"
    )


def test_an_evaluation_counts_it_as_not_solved(guesser, with_long, heard, tmp_path):
    start = start_reward_model(guesser, parameterization="head")
    save_reward_model(start, tmp_path / "reward")
    context, told = heard
    outputs = {name: tmp_path / name for name in ("report", "completions")}
    evaluate(
        EvaluateConfig(num_samples=2, pass_at=(1, 2), max_tokens=8),
        {
            "policies.guesser": guesser,
            "problems": with_long[1],
            "reward_model": tmp_path / "reward",
        },
        outputs,
        context,
    )
    (policy,) = read_report(outputs["report"]).policies
    completions = read_table(outputs["completions"], COMPLETIONS)
    long = completions.filter(problem_id=LONG.id)
    assert long["verified"].to_list() == [False, False]
    solved = completions["verified"].sum()
    assert policy.pass_at[0].value == pytest.approx(solved / (2 * 41))
    assert any("1 of 41 prompts leave no room" in each for each in told)


def test_it_is_not_practiced_on(guesser, coins, with_long):
    told = []
    tokenizer = load_policy(guesser).tokenizer
    pool, prompts = with_room(ProblemPool(with_long[0]), tokenizer, 64, note=told.append)
    assert pool.problems["id"].to_list() == [each.id for each in coins]
    assert prompts == make_prompts(tokenizer, coins)
    assert told == [
        "1 of 41 prompts leave no room for an answer in the 64 tokens of the context of the policy,"
        f" the longest has {len(make_prompts(tokenizer, [LONG])[0].token_ids)}; they are left out"
    ]


def test_a_context_that_no_prompt_leaves_room_in_is_refused(guesser, with_long):
    tokenizer = load_policy(guesser).tokenizer
    with pytest.raises(UserError, match="every prompt fills the 3 tokens"):
        with_room(ProblemPool(with_long[0]), tokenizer, 3, note=lambda _: None)
