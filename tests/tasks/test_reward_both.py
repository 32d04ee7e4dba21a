"""A preference model of both answers: preferences in a circle, which no reward has."""

import json
import math

import polars as pl
import pytest

from posttrain.data.brought import BroughtRow
from posttrain.data.brought_tables import judged_table
from posttrain.data.contexts import PromptContext, PromptInContext
from posttrain.data.formats.forms import JudgedAnswers
from posttrain.data.schemas import PAIRS, Problem
from posttrain.data.tables import write_table
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import save_policy
from posttrain.learning.models.pair_model import PairModel, facing, load_pair_model, tells
from posttrain.learning.models.reward_head import load_reward_model
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rewards.components.oracles.pair_model import PairModelOracle
from posttrain.learning.rewards.port_models import PortModels
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.reward import TASK
from tasks.reward.stage import run

BEATS = (("rock", "scissors"), ("scissors", "paper"), ("paper", "rock"))
ASKED = Problem("s", "pick 1", "", 1, "exact")
QUICK = {
    "steps": 45,
    "scale": 3.0,
    "batch_tokens": 2048,
    "optimization": {"learning_rate": 3e-3, "warmup_steps": 2},
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A small policy, and pairs of 9 prompts: each answer is preferred to the next one."""
    folder = tmp_path_factory.mktemp("circle")
    texts = ["pick 1", "Another answer:", "A better answer:", *(better for better, _ in BEATS)]
    tokenizer = train_tokenizer(texts, vocab_size=290)
    policy = build_llama(tokenizer, hidden=32, layers=2, heads=2, seed=0, max_length=128)
    save_policy(policy, tokenizer, folder / "policy")
    rows = [
        BroughtRow("s", f"f:{n}", JudgedAnswers(f"pick {n}", PromptContext(), *pair), side, 1.0)
        for n in range(9)
        for side in ("train" if n < 7 else "heldout",)
        for pair in BEATS
    ]
    write_table(judged_table(rows), folder / "pairs", PAIRS)
    return {"policy": folder / "policy", "pairs": folder / "pairs"}


def trained(places, folder, **config):
    outputs = {name: folder / name for name in ("reward_model", "pairs", "curve", "report")}
    metrics = run(
        TASK.config(**QUICK | config), places, outputs, StageContext.quiet(folder / "scratch")
    )
    return metrics, outputs, json.loads(outputs["report"].read_text())


@pytest.fixture(scope="module")
def both(places, tmp_path_factory):
    return trained(places, tmp_path_factory.mktemp("both"), reads="both")


def test_a_model_of_both_answers_learns_a_circle(both):
    metrics, outputs, report = both
    assert report["accuracy"] == metrics["reward/accuracy"] > 0.95
    assert "auroc" not in report
    losses = pl.read_parquet(outputs["curve"]).filter(metric="reward/loss")["value"]
    assert losses[-1] < 0.3
    # The pairs are those that were given, and no longer prompts.
    assert pl.read_parquet(outputs["pairs"])["prompt"].str.starts_with("pick").all()


def test_a_reward_cannot(places, tmp_path):
    """Log-odds of a reward add up to 0 round a circle, so one of three is in the wrong order, and
    ln 2 is the least loss."""
    _, outputs, report = trained(places, tmp_path)
    losses = pl.read_parquet(outputs["curve"]).filter(metric="reward/loss")["value"]
    assert losses[-1] > 0.9 * math.log(2)
    assert report["accuracy"] < 0.7


def test_the_oracle_asks_it_and_both_orders_add_up_to_1(both):
    _, outputs, _ = both
    models = PortModels({"reward_models.liked": outputs["reward_model"]})
    oracle = PairModelOracle(model="liked").asking(models)
    assert oracle.ports() == ("reward_models.liked",)
    assert models.pair_model("liked") is models.pair_model("liked")
    with pytest.raises(UserError, match="for the port reward_models.like; did you mean"):
        PairModelOracle(model="like").asking(models).prefers(ASKED, [*BEATS], {})
    turned = [(worse, better) for better, worse in BEATS]
    found = oracle.prefers(ASKED, [*BEATS, *turned, ("rock", "rock")], {})
    assert min(found[:3]) > 0.9
    assert [one + other for one, other in zip(found[:3], found[3:6], strict=True)] == [1.0] * 3
    assert found[6] == 0.5
    # Which no reward gives: its log-odds would add up to 0.
    assert sum(math.log(each / (1 - each)) for each in found[:3]) > 6


def test_one_kind_of_model_is_not_taken_for_the_other(both, places, tmp_path):
    _, outputs, _ = both
    with pytest.raises(UserError, match="unknown parameterization 'both_answers'"):
        load_reward_model(outputs["reward_model"])
    _, plain, _ = trained(places, tmp_path, steps=1)
    with pytest.raises(UserError, match=r"reads one answer; train one with reward.reads: both"):
        load_pair_model(plain["reward_model"])


def test_an_untrained_head_prefers_nothing(places, tmp_path):
    """It gives 0 to all that it reads: ln 2 a pair."""
    _, outputs, _ = trained(places, tmp_path, parameterization="head", reads="both", steps=1)
    losses = pl.read_parquet(outputs["curve"]).filter(metric="reward/loss")["value"]
    assert losses.to_list() == pytest.approx([math.log(2)], abs=1e-5)
    assert load_pair_model(outputs["reward_model"]).reads.parameterization == "head"


class Read:
    """Gives an answer its length, and a third of that of all it stands behind."""

    def score(self, prompts, texts):
        self.asked = [each if isinstance(each, str) else each.text for each in prompts]
        return [len(t) + len(p) / 3 for p, t in zip(self.asked, texts, strict=True)]


def test_log_odds_by_hand():
    """s(aa | b) = 2 + (n + 1) / 3, s(b | aa) = 1 + (n + 2) / 3: 2/3 apart; equal texts give 0."""
    model = PairModel(Read())
    system = PromptInContext("pick", PromptContext(system="Be brief."))
    prompts = ["pick", system, "pick"]
    assert model.logits(prompts, ["aa", "b", "c"], ["b", "aa", "c"]) == pytest.approx(
        [2 / 3, -2 / 3, 0.0]
    )
    assert model.reads.asked[0] == "pick\n\nAnother answer:\nb\n\nA better answer:"
    assert tells(system, "b").context.system == "Be brief."


def test_each_side_of_a_pair_stands_behind_the_other_one():
    pairs = judged_table(
        [
            BroughtRow(
                "s", "f:1", JudgedAnswers("pick", PromptContext(), "good", "bad"), "train", 1.0
            )
        ]
    )
    [row] = facing(pairs).rows(named=True)
    assert row["prompt"] == tells("pick", "bad")
    assert row["rejected_prompt"] == tells("pick", "good")
    assert (row["chosen"], row["rejected"]) == ("good", "bad")
