"""Answers of others in a group: how they are compared and enter the loss, and what is kept."""

import math
from types import SimpleNamespace

import polars as pl
import pytest
import torch

from posttrain.data.schemas import (
    COMPLETIONS,
    CURVE,
    ROLLOUTS,
    Completion,
    completions_table,
)
from posttrain.data.tables import read_table, write_table
from posttrain.learning.algorithms.advantages.group import GroupAdvantage
from posttrain.learning.algorithms.batches import RolloutBatch
from posttrain.learning.algorithms.foreign_losses.balanced import Balanced
from posttrain.learning.algorithms.foreign_losses.cloned import Cloned
from posttrain.learning.algorithms.foreign_losses.shaped import Shaped
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.additions.refinements import Refinements
from posttrain.learning.rl.additions.tempered import Tempered
from posttrain.learning.rl.joined import _best
from posttrain.learning.rl.producers.base import Workbench
from posttrain.learning.rl.replay import replay
from posttrain.learning.rl.understood import understood
from posttrain.learning.rollouts.engines.base import FinishReason, SamplingParams
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run


def test_foreign_losses_by_hand():
    now = torch.tensor([[math.log(0.1), math.log(0.5)]], requires_grad=True)
    before = torch.tensor([[math.log(0.2), math.log(0.5)]])
    paid = torch.tensor([[2.0]])
    cloned = Cloned(weight=3.0).token_loss(now, before, paid)
    assert cloned.tolist()[0] == pytest.approx([-3 * math.log(0.1), -3 * math.log(0.5)])
    shaped = Shaped().token_loss(now, before, paid)
    assert shaped.tolist()[0] == pytest.approx([-2 * 0.5, -2 * 0.5 / 0.6])
    (slope,) = torch.autograd.grad(shaped.sum(), now)
    # d/d log p of p / (p + g) = g p / (p + g)^2
    assert slope.tolist()[0] == pytest.approx([-2 * 0.01 / 0.04, -2 * 0.05 / 0.36])
    balanced = Balanced().token_loss(now, before, paid)
    by_hand = [
        -2 * math.sqrt(0.9) * 0.2 / (0.2 + 0.6),
        -2 * math.sqrt(0.5) * 1.0 / (0.5 + 0.75),
    ]
    assert balanced.tolist()[0] == pytest.approx(by_hand)
    # Linear in p: its slope by log p is itself, as nothing flows through the focus.
    (slope,) = torch.autograd.grad(balanced.sum(), now)
    assert slope.tolist()[0] == pytest.approx(by_hand)


def advantages(**settings):
    batch = RolloutBatch(
        rewards_B=torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 1.0], dtype=torch.float64),
        group_B=torch.tensor([0, 0, 0, 1, 1, 1]),
        foreign_B=torch.tensor([False, False, True, False, False, True]),
    )
    part = GroupAdvantage(**settings)
    found, _ = part.estimate(batch, rewards_B=batch.rewards_B, costs=(), include_B=None)
    return found[:, 0].tolist()


def test_answers_of_others_are_compared_with_the_policys_own():
    assert advantages(over="own") == pytest.approx([-0.5, 0.5, 0.5, 0, 0, 1])
    third = 1 / 3
    assert advantages() == pytest.approx([-2 * third, third, third, -third, -third, 2 * third])
    # Where all of its own failed there is no deviation to divide by.
    deviation = math.sqrt(0.5)
    assert advantages(over="own", scale="sample", epsilon=0.0) == pytest.approx(
        [-0.5 / deviation, 0.5 / deviation, 0.5 / deviation, 0, 0, 1]
    )


@pytest.fixture(scope="module")
def inputs(guesser, coins, coins_path, tmp_path_factory):
    rows = [
        Completion(coin, f"#### {coin.answer}", name, 1.0, True, "correct")
        for coin in coins
        for name in ("one", "two")
    ]
    wrong = [Completion(coin, "#### 9", "three", 0.0, False, "") for coin in coins]
    path = tmp_path_factory.mktemp("traces") / "traces.parquet"
    write_table(completions_table(rows + wrong), path, COMPLETIONS)
    return {"policy": guesser, "problems": coins_path, "solutions": path}


def trained(inputs, folder, additions, **settings):
    said = {
        "steps": 3,
        "problems_per_step": 8,
        "group_size": 3,
        "max_tokens": 6,
        "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
        "updates": {"minibatches": 2},
        "draw": {"additions": {"kind": "traces"} | additions},
        "algorithm": {"foreign": "shaped"},
        "checkpoint_every": 0,
    }
    config = RlStageConfig.parse(said | settings, where="rl")
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    run(config, inputs, outputs, StageContext.quiet(folder / "scratch", seed=3))
    return config, outputs, read_table(outputs["rollouts"], ROLLOUTS)


def test_a_run_with_traces_is_replayed_from_its_rows_and_measured_without_them(inputs, tmp_path):
    config, outputs, rows = trained(inputs, tmp_path, {"count": 1})
    traces = rows.filter(origin="trace")
    assert len(traces) == 3 * 8
    assert traces["trained"].all()
    assert traces["solved"].all()
    table = read_table(inputs["solutions"], COMPLETIONS).filter("verified")
    assert set(traces["parents"].list.last()) <= set(table["id"])
    # Behind the same prompt as the others of the group.
    prompts = rows.with_columns(
        asked=pl.col("token_ids").list.head(pl.col("spans").list.first().struct.field("end"))
    )
    assert prompts.group_by("step", "group").agg(pl.col("asked").n_unique())["asked"].max() == 1
    curve = read_table(outputs["curve"], CURVE)
    for name, number in (("added", 8), ("added_reward", 1), ("rollouts_drawn", 24)):
        assert set(curve.filter(metric=f"rl/{name}")["value"]) == {number}
    own = rows.filter(origin="policy")
    rewards = own.group_by("step", maintain_order=True).agg(pl.col("reward").mean())["reward"]
    assert curve.filter(metric="rl/reward")["value"].to_list() == pytest.approx(rewards.to_list())
    assert curve.filter(metric="rl/logprob_gap")["value"].max() < 1e-3
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": inputs["policy"]}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)


def test_where_all_failed_some_give_way(inputs, tmp_path):
    additions = {"count": 2, "when": "failed", "replace": True, "choose": "understood"}
    _, outputs, rows = trained(inputs, tmp_path, additions, group_size=2, steps=2)
    groups = rows.group_by("step", "group").agg(
        failed=~pl.col("solved").filter(pl.col("origin") == "policy").any(),
        traces=(pl.col("origin") == "trace").sum(),
        given_way=(~pl.col("trained")).sum(),
    )
    failed = groups.filter("failed")
    assert 0 < len(failed) < len(groups)
    # Both answers of the group give way to both traces that are right.
    assert set(failed["traces"]) == set(failed["given_way"]) == {2}
    assert groups.filter(~pl.col("failed"))["traces"].sum() == 0
    credited = rows.filter(pl.col("advantages").list.len() > 0)
    assert set(credited["trained"]) == {True}


def test_the_best_refinement_joins_as_an_answer_to_the_problem_alone(inputs, tmp_path):
    part = Refinements(prompt="{problem} {solution} ({critique})", told="verdict")
    rows = [SimpleNamespace(text="{critique} 1", solved=solved) for solved in (True, False, None)]
    problem = SimpleNamespace(prompt="up 0 =", answer="1")
    says = ["correct", "incorrect", "incorrect"]
    assert [part.asks(problem, row) for row in rows] == [
        f"up 0 = {{critique}} 1 (The solution is {each}.)" for each in says
    ]
    unasked = {"additions": {"kind": "refinements", "prompt": "{problem} {solution}"}}
    with pytest.raises(UserError, match="prompt has no {critique}"):
        RlStageConfig.parse({"draw": unasked, "algorithm": {"foreign": "shaped"}}, where="rl")

    additions = {"kind": "refinements", "prompt": "{problem}{solution}{critique}"}
    given = {name: path for name, path in inputs.items() if name != "solutions"}
    config, outputs, rows = trained(given, tmp_path, additions, max_tokens=4)
    refined = rows.filter(origin="refinement")
    assert 0 < len(refined) <= 3 * 8
    assert (
        rows.group_by("step", "group")
        .agg((pl.col("origin") == "refinement").sum().alias("joined"))["joined"]
        .max()
    ) == 1
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": inputs["policy"]}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)


def test_of_answers_that_join_those_with_the_highest_reward_stay_in_their_order():
    rewards = (0.0, None, 1.0, 0.5, 1.0)
    rows = [SimpleNamespace(place=at, reward=reward) for at, reward in enumerate(rewards)]
    assert [each.place for each in _best(rows, 2)] == [2, 4]
    assert [each.place for each in _best(rows, 4)] == [0, 2, 3, 4]
    assert _best(rows, None) == rows


def test_what_is_understood_makes_the_answer_likely(guesser, coins):
    policy = load_policy(guesser)
    bench = Workbench(None, None, policy.tokenizer, policy)
    asked = policy.tokenizer(coins[0].prompt)["input_ids"]
    plain, silent = understood(bench, asked, ["#### 1", "#### 2"], "1")
    assert 0.4 < plain < 1
    assert silent == 0


def test_answers_of_others_without_a_loss_for_them_are_refused():
    with pytest.raises(UserError, match="nothing says how these enter the loss"):
        RlStageConfig.parse({"draw": {"additions": {"kind": "traces"}}}, where="rl")


def test_each_group_is_offered_what_was_drawn_for_its_own_problem():
    """Four groups of 1 nat a token, above the target: the cooler draw, for half of the share."""
    asked = []

    def sample(prompts, params):
        asked.append(params.temperature)
        for prompt in prompts:
            for place in range(params.num_samples):
                end = FinishReason.LENGTH if place == 1 else FinishReason.STOP
                yield SimpleNamespace(text=f"{prompt.id} {place}", finish_reason=end)

    bench = SimpleNamespace(work=SimpleNamespace(engine=SimpleNamespace(sample=sample)))
    row = SimpleNamespace(logprobs=[-1.0], token_ids=[1, 2], spans=[SimpleNamespace(end=1)])
    problems = [SimpleNamespace(id=name) for name in "abcd"]
    at = SimpleNamespace(params=SamplingParams(max_tokens=4, num_samples=3))
    tempered = Tempered(target=0.5, share=1.0, high=2.0, low=0.5).start(bench)
    found = tempered.join([[row, row]] * 4, problems, at)
    offered = [[each.text for each in joining.added] for joining in found]
    assert offered == [["a/tempered 0", "a/tempered 2"], ["b/tempered 0", "b/tempered 2"], [], []]
    assert asked == [0.5]


@pytest.mark.parametrize(("target", "groups"), [(100.0, 4), (0.0, 2)])
def test_right_answers_of_another_temperature_join_the_first_groups(
    inputs, tmp_path, target, groups
):
    """Half of 8 groups where the entropy is below the target, a quarter where it is above."""
    additions = {"kind": "tempered", "target": target, "share": 0.5, "high": 2.0, "low": 0.5}
    config, outputs, rows = trained(inputs, tmp_path, additions, algorithm={"foreign": "cloned"})
    joined = rows.filter(pl.col("origin") != "policy")
    assert 0 < len(joined) <= 3 * groups * 3
    assert set(joined["origin"]) == {"tempered"}
    assert joined["solved"].all()
    assert joined["group"].max() < groups
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": inputs["policy"]}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)
