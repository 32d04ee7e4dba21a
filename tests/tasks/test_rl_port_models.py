"""Rewards that ask models of the stage's ports: what they pay, and what the plan refuses."""

import math

import pytest
import torch

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy, save_policy
from posttrain.learning.models.reward_head import (
    load_reward_model,
    save_reward_model,
    start_reward_model,
)
from posttrain.pipeline.stage_section import inputs_by_port
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Reference, Stage
from tasks.rl import TASK
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

COMPONENTS = {
    "correct": "verifier",
    "liked": {"kind": "model", "models": ["one"], "squash": "sigmoid"},
    "both": {"kind": "model", "models": ["one", "two"], "reduce": "mean_less_deviation"},
    "least": {"kind": "model", "models": ["one", "two"], "reduce": "min"},
    "implied": {"kind": "log_ratio", "of": "moved", "against": "start", "beta": 0.5},
    "near": {"kind": "embedding", "model": "start"},
    "alike": {"kind": "embedding", "model": "start", "to": "group"},
    "told": {"kind": "information_gain", "model": "start"},
}
CONFIG = {
    "steps": 2,
    "problems_per_step": 3,
    "group_size": 4,
    "max_tokens": 8,
    "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    "checkpoint_every": 0,
    "reward": {
        "components": COMPONENTS,
        "combine": {"kind": "sum", "weights": {"correct": 0.0, "both": 0.1}},
    },
}


@pytest.fixture(scope="module")
def ports(guesser, coins_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    moved = load_policy(guesser)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in moved.model.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=generator)
    save_policy(moved.model, moved.tokenizer, folder / "moved")
    for name, policy in (("one", guesser), ("two", folder / "moved")):
        made = start_reward_model(policy, parameterization="likelihood", scale=2.0)
        save_reward_model(made, folder / name)
    return {
        "policy": guesser,
        "problems": coins_path,
        "reward_models.one": folder / "one",
        "reward_models.two": folder / "two",
        "references.start": guesser,
        "references.moved": folder / "moved",
    }


@pytest.fixture(scope="module")
def rollouts(ports, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rl")
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    run(RlStageConfig(**CONFIG), ports, outputs, StageContext.quiet(folder / "scratch"))
    return list(read_table(outputs["rollouts"], ROLLOUTS).iter_rows(named=True))


def scores(row):
    return {each["name"]: each["value"] for each in row["components"]}


def test_reward_models_score_the_texts_and_are_reduced_as_it_says(rollouts, ports, coins):
    prompts = {problem.id: problem.prompt for problem in coins}
    asked = [prompts[row["problem_id"]] for row in rollouts]
    one, two = (
        load_reward_model(ports[f"reward_models.{name}"]).score(
            asked, [row["text"] for row in rollouts]
        )
        for name in ("one", "two")
    )
    for row, first, second in zip(rollouts, one, two, strict=True):
        found = scores(row)
        # Of two numbers the population deviation is half their distance.
        hand = (first + second) / 2 - abs(first - second) / 2
        assert found["both"] == pytest.approx(hand, abs=1e-4)
        assert found["least"] == pytest.approx(min(first, second), abs=1e-4)
        assert found["liked"] == pytest.approx(1 / (1 + math.exp(-first)), abs=1e-5)
        assert row["reward"] == pytest.approx(
            sum(value for name, value in found.items() if name not in ("correct", "both"))
            + 0.1 * found["both"]
        )


def test_a_log_ratio_is_the_sum_over_the_drawn_tokens(rollouts, ports):
    models = [load_policy(ports[f"references.{name}"]).model for name in ("moved", "start")]
    for row in rollouts[:6]:
        ids, drawn = row["token_ids"], len(row["logprobs"])
        with torch.no_grad():
            above, below = (
                torch.log_softmax(model(torch.tensor([ids])).logits[0], -1) for model in models
            )
        places = range(len(ids) - drawn, len(ids))
        hand = sum(float(above[t - 1, ids[t]] - below[t - 1, ids[t]]) for t in places)
        assert scores(row)["implied"] == pytest.approx(0.5 * hand, abs=1e-4)


def test_states_and_gains_lie_in_their_ranges_and_differ(rollouts):
    for name in ("near", "alike", "told"):
        found = [scores(row)[name] for row in rollouts]
        assert all(-1 <= each <= 1 for each in found)
    assert len({round(scores(row)["near"], 6) for row in rollouts}) > 1


def stage(components, **wired):
    config = RlStageConfig.parse({"reward": {"components": components}}, where="rl")
    inputs = {
        "policy": Reference(ArtifactKind.CHECKPOINT, stage="sft", output="policy"),
        "problems": Reference(ArtifactKind.PROBLEMS, stage="curate", output="problems"),
        **{
            name.replace("__", "."): Reference(ArtifactKind.REWARD_MODEL, stage=each, output="x")
            for name, each in wired.items()
        },
    }
    return Stage("rl", TASK, config, inputs)


LIKED = {"correct": "verifier", "liked": {"kind": "model", "models": ["a"], "squash": "sigmoid"}}


def test_a_component_without_its_model_is_refused_by_the_plan():
    with pytest.raises(UserError) as error:
        TASK.refuse(stage(LIKED), Dag())
    assert str(error.value) == (
        "rl.reward.components.liked: it asks reward_models.a, which is not connected; add"
        " rl: {inputs: {reward_models: {a: reward.reward_model}}}"
    )
    TASK.refuse(stage(LIKED, reward_models__a="reward"), Dag())


def test_a_model_that_no_component_asks_is_refused_by_the_plan():
    with pytest.raises(UserError, match=r"rl\.inputs\.reward_models\.b: nothing under rl\.reward"):
        TASK.refuse(stage({"correct": "verifier"}, reward_models__b="reward"), Dag())


def test_a_recipe_names_a_model_below_its_port_or_behind_a_dot():
    below = inputs_by_port({"reward_models": {"a": "reward.reward_model"}, "solve_rates": None})
    assert below == {"reward_models.a": "reward.reward_model", "solve_rates": None}
    assert inputs_by_port({"reward_models.a": "x.y"}) == {"reward_models.a": "x.y"}


def test_an_unbounded_score_beside_correctness_is_refused():
    components = {"correct": "verifier", "liked": {"kind": "model", "models": ["a"]}}
    with pytest.raises(
        UserError, match=r"a wrong answer may earn any number and a right one less than any number"
    ):
        RlStageConfig.parse({"reward": {"components": components}}, where="rl")
