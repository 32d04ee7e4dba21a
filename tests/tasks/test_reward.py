import json

import polars as pl
import pytest

from posttrain.learning.models.reward_head import load_reward_model
from posttrain.learning.training.config import LearnerConfig
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.reward import TASK
from tasks.reward.heldout import grade
from tasks.reward.stage import run

HEAD = TASK.config(
    parameterization="head",
    scale=1.0,
    epochs=30.0,
    batch_tokens=1024,
    optimization={"optimizer": "adamw", "learning_rate": 0.01, "warmup_steps": 2},
)
LIKELIHOOD = TASK.config(
    epochs=4.0, batch_tokens=1024, optimization={"learning_rate": 0.003, "warmup_steps": 2}
)


@pytest.fixture
def places(answers, base, write, tmp_path):
    # Markers that a tiny model can read: what a right answer looks like is learnable here.
    marked = answers.with_columns(
        text=pl.when("verified").then(pl.lit("#### 7")).otherwise(pl.lit("#### 8 ="))
        + pl.col("text")
    )
    names = ("reward_model", "pairs.parquet", "curve.parquet", "report.json")
    outputs = {name.split(".")[0]: tmp_path / name for name in names}
    return {"policy": base, "samples": write(marked)}, outputs


def quiet(path):
    return StageContext.quiet(path / "scratch")


def test_a_head_starts_at_ln_2_learns_and_generalizes_to_problems_held_out(places, tmp_path):
    inputs, outputs = places
    metrics = run(HEAD, inputs, outputs, quiet(tmp_path))
    losses = pl.read_parquet(outputs["curve"]).filter(metric="reward/loss")["value"]
    assert losses[0] == pytest.approx(0.693147, abs=1e-5)
    report = json.loads(outputs["report"].read_text())
    assert report["accuracy"] == metrics["reward/accuracy"] > 0.95
    assert report["auroc"] > 0.95
    pairs = pl.read_parquet(outputs["pairs"])
    sides = pairs.group_by("problem_id").agg(pl.col("split").n_unique())["split"]
    assert sides.to_list() == [1] * len(sides)
    assert report["num_pairs"] == pairs.filter(split="heldout").height
    # 60 sums have 2 distinct wrong answers each; a fifth of them is held out.
    assert (pairs.height, report["num_problems"]) == (120, 12)


def test_the_likelihood_learns_and_generalizes_too(places, tmp_path):
    inputs, outputs = places
    metrics = run(LIKELIHOOD, inputs, outputs, quiet(tmp_path))
    losses = pl.read_parquet(outputs["curve"]).filter(metric="reward/loss")["value"]
    assert losses[-1] < 0.5 * losses[0]
    assert metrics["reward/accuracy"] > 0.95
    loaded = load_reward_model(outputs["reward_model"])
    assert (loaded.parameterization, loaded.scale) == ("likelihood", 10.0)


# Through the policy's own head it takes longer, and the rows are packed by the same code.
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(HEAD, id="head"),
        pytest.param(LIKELIHOOD, id="likelihood", marks=pytest.mark.slow),
    ],
)
def test_packed_pairs_give_the_losses_of_padded_ones(places, tmp_path, config):
    inputs, outputs = places
    losses = []
    for packed in (False, True):
        more = {"steps": 3, "batch_tokens": 10**6, "learner": LearnerConfig(packing=packed)}
        folder = tmp_path / str(packed)
        run(config.model_copy(update=more), inputs, outputs, quiet(folder))
        curve = pl.read_parquet(outputs["curve"])
        losses.append(curve.filter(metric="reward/loss")["value"].to_list())
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)


@pytest.mark.slow
def test_adapters_train_a_head_that_is_saved_as_a_plain_classifier(places, tmp_path):
    inputs, outputs = places
    learner = LearnerConfig(lora={"rank": 4}, precision="bf16", ema_decay=0.5)
    metrics = run(HEAD.model_copy(update={"learner": learner}), inputs, outputs, quiet(tmp_path))
    assert metrics["reward/accuracy"] > 0.9
    names = load_reward_model(outputs["reward_model"]).model.state_dict()
    assert "score.weight" in names
    assert not any("lora" in name for name in names)
    with pytest.raises(UserError, match="a reward model is saved whole"):
        TASK.config.parse({"learner": {"lora": {"save": "adapter"}}}, where="reward")


class Scripted:
    """A reward model that says what it is told."""

    def __init__(self, rewards):
        self.rewards = rewards

    def score(self, _prompts, texts):
        return [self.rewards[text] for text in texts]


def test_the_report_on_pairs_with_known_rewards():
    pairs = pl.DataFrame(
        {
            "problem_id": ["p", "p", "q", "r"],
            "source": ["one", "one", "one", "two"],
            "prompt": ["", "", "", ""],
            "context": ["", "", "", ""],
            "chosen": ["a", "a", "b", "c"],
            "rejected": ["xx", "yy", "zz", "w"],
        }
    )
    rewards = {"a": 2.0, "b": 1.0, "c": 0.0, "xx": 0.0, "yy": 3.0, "zz": 1.0, "w": -1.0}
    report = grade(Scripted(rewards), pairs)
    # Gaps 2, -1, 0, 1: right, wrong, tie, right.
    assert report["accuracy"] == 2.5 / 4
    assert report["by_source"] == {
        "one": {"num_pairs": 3, "accuracy": 0.5},
        "two": {"num_pairs": 1, "accuracy": 1.0},
    }
    # Verified 2, 1, 0 against refuted 0, 3, 1, -1: 2 beats three, 1 beats two and ties one,
    # 0 beats one and ties one; "a" counts once although it is in two pairs.
    assert report["auroc"] == pytest.approx((3 + 2.5 + 1.5) / 12)
    # Shorter wins in three pairs, the fourth is a tie.
    assert report["length_accuracy"] == 3.5 / 4
    # Brier of each pair both ways round is (1 - sigmoid(gap))^2.
    expected = sum((1 - 1 / (1 + 2.718281828**-gap)) ** 2 for gap in (2, -1, 0, 1)) / 4
    assert report["brier"] == pytest.approx(expected, abs=1e-6)
    assert sum(bin_["count"] for bin_ in report["reliability"]) == 8
    assert (report["num_pairs"], report["num_problems"]) == (4, 3)


def test_samples_without_contrast_are_refused(places, write, tmp_path):
    inputs, outputs = places
    verified = pl.read_parquet(inputs["samples"]).filter("verified")
    with pytest.raises(UserError, match="no problem has both a verified and a refuted sample"):
        run(HEAD, {**inputs, "samples": write(verified, "same")}, outputs, quiet(tmp_path))
    assert not any(path.exists() for path in outputs.values())


def test_pairs_over_the_limit_are_refused_only_if_none_is_left(places, tmp_path):
    inputs, outputs = places
    with pytest.raises(UserError, match="no pair fits into max_length 8"):
        run(HEAD.model_copy(update={"max_length": 8}), inputs, outputs, quiet(tmp_path))
