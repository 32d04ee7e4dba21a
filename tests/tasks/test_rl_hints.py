"""Rollouts behind a part of a solution: what is read, what is judged, and exact to the bit."""

import pytest

from posttrain.backends.cluster import local_pool
from posttrain.data.schemas import (
    COMPLETIONS,
    CURVE,
    IDENTITY,
    ROLLOUTS,
    Completion,
    completions_table,
    with_row_ids,
)
from posttrain.data.tables import read_table, write_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rewards.verify import verify
from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tests.tasks.exact import run_with_ends
from tests.tasks.test_rl_ahead import SMALL, InTurn, same, trained

NOW = {"staleness": 0, "algorithm": "grpo"}
FITTED = {"kind": "item_response", "rounds": 2, "first": 0.3, "memory": 3}


@pytest.fixture(scope="module")
def inputs(guesser, coins, coins_path, tmp_path_factory):
    """Policy, problems, and a solution of all but the last eight problems."""
    path = tmp_path_factory.mktemp("solved") / "traces.parquet"
    made = [
        Completion(
            each, f"up down\n#### {each.answer}", "teacher", 1.0, verified=True, reason="correct"
        )
        for each in coins[:-8]
    ]
    rows = with_row_ids(completions_table(made), IDENTITY["completions"])
    write_table(rows, path, COMPLETIONS)
    return {"policy": guesser, "problems": coins_path, "traces": path}


def hinted(law, **more):
    return NOW | {"producer": {"kind": "hinted", "law": law, **more}}


def facts(row):
    return {each["name"]: each["value"] for each in row["facts"]}


def rows_of(outputs):
    return read_table(outputs["rollouts"], ROLLOUTS).to_dicts()


@pytest.mark.slow
def test_a_share_of_nothing_is_the_run_without_hints(inputs, tmp_path):
    plain = {name: inputs[name] for name in ("policy", "problems")}
    alone, _ = trained(plain, tmp_path / "plain", **NOW)
    other, _ = trained(inputs, tmp_path / "hinted", **hinted({"kind": "fixed", "given": 0.0}))
    without = [{**row, "facts": []} for row in rows_of(other)]
    assert without == rows_of(alone)
    digests = [weights_digest(load_policy(each["policy"]).model) for each in (alone, other)]
    assert digests[0] == digests[1]


def test_what_is_given_is_read_and_judged_with_what_is_drawn(inputs, coins, guesser, tmp_path):
    outputs, _ = trained(inputs, tmp_path / "run", **hinted({"kind": "fixed", "given": 0.9}))
    tokenizer = load_policy(guesser).tokenizer
    problems = {each.id: each for each in coins}
    solved = {
        row["problem_id"]: row for row in read_table(inputs["traces"], COMPLETIONS).to_dicts()
    }
    behind = [row for row in rows_of(outputs) if facts(row)["hint"]]
    for row in rows_of(outputs):
        problem, (read, drawn) = problems[row["problem_id"]], row["spans"]
        assert (read["drawn"], drawn["drawn"]) == (False, True)
        assert len(row["logprobs"]) == drawn["end"] - drawn["begin"]
        assert row["solved"] == verify(row["text"], problem).correct
        trace = solved.get(problem.id)
        assert bool(facts(row)["hint"]) == (trace is not None)
        if trace is None:
            assert row["parents"] == [problem.id]
            continue
        assert row["parents"] == [problem.id, trace["id"]]
        given = round(
            facts(row)["hint"] * len(tokenizer.encode(trace["text"], add_special_tokens=False))
        )
        begun = tokenizer.decode(row["token_ids"][read["end"] - given : read["end"]])
        assert begun
        assert trace["text"].startswith(begun)
        assert row["text"].startswith(begun)
        assert not tokenizer.decode(row["token_ids"][read["end"] :]).startswith(begun)
    # Only together with what was given do they state an answer.
    assert any(row["solved"] for row in behind)
    curve = read_table(outputs["curve"], CURVE)
    share = len(behind) / len(rows_of(outputs))
    assert curve.filter(metric="rl/hinted")["value"].mean() == pytest.approx(share)


def test_a_hint_in_the_prompt_is_told_behind_the_problem(inputs, guesser, tmp_path):
    law = {"kind": "fixed", "given": 0.9}
    told = hinted(law, place="prompt", lead="down up")
    outputs, _ = trained(inputs, tmp_path / "run", **told)
    tokenizer = load_policy(guesser).tokenizer
    for row in rows_of(outputs):
        read = tokenizer.decode(row["token_ids"][: row["spans"][0]["end"]])
        assert ("=\ndown up\nup" in read) == bool(facts(row)["hint"])
        assert row["text"] == tokenizer.decode(
            row["token_ids"][row["spans"][1]["begin"] :], skip_special_tokens=True
        )


def test_a_group_that_failed_is_drawn_again_and_the_last_hint_is_learned_from(inputs, tmp_path):
    grown = hinted({"kind": "growth", "shares": [0.5, 0.9]})
    # Of one rollout many a group fails.
    grown |= {"draw": {"select": "last_hint"}, "group_size": 2}
    outputs, _ = trained(inputs, tmp_path / "run", **grown)
    groups = read_table(outputs["rollouts"], ROLLOUTS).partition_by("step", "group")
    solved, lengths = set(read_table(inputs["traces"], COMPLETIONS)["problem_id"]), {}
    for group in groups:
        rounds = [facts(row)["hint_round"] for row in group.to_dicts()]
        last = max(rounds)
        lengths.setdefault(group["problem_id"][0] in solved, set()).add(len(group))
        assert len(group) == 2 * (last + 1)
        assert group["trained"].to_list() == [each == last for each in rounds]
        assert group["episode"].n_unique() == len(group)
        for row, each in zip(group.to_dicts(), rounds, strict=True):
            assert not (each < last and row["solved"])
            assert len(row["advantages"]) == (row["spans"][1]["end"] - row["spans"][1]["begin"]) * (
                each == last
            )
    # A problem without a solution is not drawn again behind nothing.
    assert lengths[False] == {2}
    assert len(lengths[True]) > 1


@pytest.mark.parametrize(
    "settings",
    [
        hinted(FITTED),
        pytest.param(
            NOW | {"producer": {"kind": "before_failure", "share": 0.5}}, marks=pytest.mark.slow
        ),
        pytest.param(
            NOW | {"producer": {"kind": "guided", "begins": {"from": 0.0, "to": 1.0, "over": 2}}},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["item_response", "before_failure", "guided"],
)
def test_what_is_recalled_is_in_the_checkpoint_and_the_rows_alone_give_the_weights(
    inputs, guesser, settings, tmp_path
):
    if settings["producer"]["kind"] == "guided":
        inputs = inputs | {"players.guide": guesser}
    whole, _ = trained(inputs, tmp_path / "whole", **settings)
    config = RlStageConfig(**SMALL | settings | {"checkpoint_every": 1})

    outputs = run_with_ends(config, inputs, whole, tmp_path / "killed", (3,))
    same(whole, outputs)
    # Shares follow what came of the rounds or of the steps before, or are drawn.
    share = "guided" if settings["producer"]["kind"] == "guided" else "hint"
    assert len({facts(row)[share] for row in rows_of(whole)}) > 1
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(RlStageConfig(**SMALL | settings), inputs, whole["rollouts"], context)
    assert found == weights_digest(load_policy(whole["policy"]).model)


def test_others_draw_ahead_behind_hints_unless_the_law_looks(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(local_pool, "LocalPool", InTurn)
    settings = hinted({"kind": "scattered"}) | {"staleness": 1}
    alone, _ = trained(inputs, tmp_path / "alone", **settings)
    other, _ = trained(inputs, tmp_path / "ahead", ahead=1, **settings)
    same(alone, other)
    looking = hinted({"kind": "growth"}) | {"staleness": 1, "ahead": 1}
    with pytest.raises(UserError, match=r"asks what rollouts earn.*set rl.ahead to 0"):
        trained(inputs, tmp_path / "looking", **looking)


def test_an_instruction_and_a_prompt_that_is_written_anew_are_refused_together():
    told = hinted({"kind": "fixed"}, place="prompt")
    both = {"instructions": {"kind": "population", "texts": ["Go.", "Think."]}}
    with pytest.raises(ValueError, match=r"producer.place prompt writes its prompt anew"):
        RlStageConfig(**SMALL | told | {"draw": both})
