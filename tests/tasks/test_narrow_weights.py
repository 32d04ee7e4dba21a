"""Runs whose weights are held in bfloat16: exact after kills and in a replay, saved as they are."""

import json

import pytest
from safetensors import safe_open

from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.record import trained_from
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.preference.config import PreferenceConfig
from tasks.preference.stage import run as prefer
from tasks.reward import TASK as REWARD
from tasks.reward.stage import run as reward
from tasks.rl.config import RlStageConfig
from tests.quick import first_now
from tests.tasks.exact import broken_off, trained_on_coins, watched

BF16 = {"weights": "bf16"}
FREE = {"max_grad_norm": None, "in_backward": True}
BASE = {
    "steps": 2,
    "problems_per_step": 4,
    "group_size": 4,
    "max_tokens": 6,
    "algorithm": {"regularizers": {"kl": {"coefficient": 0.05}}},
    "updates": {"minibatches": 2},
    "checkpoint_every": 1,
}
OPTIMIZATION = {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0}
CASES = {
    "8bit, within": (BF16, {"states": "8bit", **FREE}),
    "stochastic": (BF16, {}),
    "kahan": (BF16, {"rounding": "kahan"}),
    "muon": (BF16, {"optimizer": "muon", "rounding": "nearest"}),
    "float32, host": ({}, {"offload": True, "states": "8bit"}),
}


def dtypes(folder):
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118


@pytest.mark.parametrize("name", first_now(CASES))
def test_rl_is_exact_after_kills_and_in_a_replay(guesser, coins_path, tmp_path, name):
    learner, optimization = CASES[name]
    if "8bit" in optimization.values():
        pytest.importorskip("bitsandbytes")
    said = BASE | {"learner": learner, "optimization": OPTIMIZATION | optimization}

    def train(folder):
        return trained_on_coins(said, guesser, coins_path, tmp_path / folder)

    seen, ((config, inputs, outputs), curve, digest) = watched(lambda: train("whole"))
    # Both learn from bits of the sampler's own weights, whose passes round in other shapes.
    assert max(curve["rl/logprob_gap"]) < 0.02
    _, again, resumed = broken_off(lambda: train("broken"), seen[1:4:2])
    assert resumed == digest != weights_digest(load_policy(guesser).model)
    assert again == curve
    context = StageContext.quiet(tmp_path / "again", seed=3)
    assert replay(config, inputs, outputs["rollouts"], context) == digest
    report = json.loads(outputs["report"].read_text())["policy"]
    assert report["before"] == weights_digest(load_policy(guesser).model)
    assert report["after"] == digest
    if learner:
        assert {str(each) for each in dtypes(outputs["policy"])} == {"torch.bfloat16"}
        # The weights that were stored, and those that they were rounded to.
        ancestors = trained_from(load_policy(outputs["policy"]).model)
        assert ancestors[-2] == report["before"] != ancestors[-1]


def test_the_reference_is_held_as_the_policy_is(guesser, coins_path, tmp_path, monkeypatch):
    held, update = [], PolicyLearner.update

    def looked(self, samples, **given):
        held.append((self.model.dtype, self.passes.reference.model.dtype))
        return update(self, samples, **given)

    monkeypatch.setattr(PolicyLearner, "update", looked)
    for reference in ("frozen", {"kind": "ema", "decay": 0.9}):
        said = BASE | {"steps": 1, "learner": BF16, "reference": reference}
        folder = tmp_path / str(len(held))
        trained_on_coins(said | {"optimization": OPTIMIZATION}, guesser, coins_path, folder)
    told = [tuple(map(str, each)) for each in held[::2]]
    # One that follows in small steps would not move between two numbers of bfloat16.
    assert told == [("torch.bfloat16", "torch.bfloat16"), ("torch.bfloat16", "torch.float32")]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"optimization": {"rounding": "kahan"}}, "rounding kahan is for trained weights in bf"),
        (
            {"optimization": OPTIMIZATION | FREE, "algorithm": "ppo"},
            "in_backward steps weights as .* algorithm.critic wants it whole",
        ),
    ],
)
def test_what_would_do_nothing_or_needs_whole_gradients_is_refused(said, told):
    with pytest.raises(UserError, match=told):
        RlStageConfig.parse(said, where="rl")


@pytest.fixture
def stored_in_bf16(guesser, tmp_path):
    import torch

    policy = load_policy(guesser, dtype=torch.bfloat16)
    save_policy(policy.model, policy.tokenizer, tmp_path / "half")
    return tmp_path / "half"


def test_preferences_of_a_policy_that_is_stored_in_bfloat16(
    stored_in_bf16, coins_path, samples_of_coins, tmp_path
):
    config = PreferenceConfig.parse(
        {
            "steps": 3,
            "algorithm": "dpo",
            "learner": BF16,
            "optimization": {"learning_rate": 1e-3, "warmup_steps": 0, **FREE},
        },
        where="preference",
    )
    given = {"policy": stored_in_bf16, "problems": coins_path, "samples": samples_of_coins}
    outputs = {name: tmp_path / name for name in ("policy", "pairs", "curve", "report")}
    prefer(config, given, outputs, StageContext.quiet(tmp_path / "scratch", seed=3))
    assert {str(each) for each in dtypes(outputs["policy"])} == {"torch.bfloat16"}
    # Nothing was rounded: the weights that it began with are those that evaluations load.
    start = weights_digest(load_policy(stored_in_bf16).model)
    trained = load_policy(outputs["policy"]).model
    assert trained_from(trained)[-1] == start != weights_digest(trained)


@pytest.mark.parametrize("parameterization", ["head", "likelihood"])
def test_reward_models(guesser, samples_of_coins, tmp_path, parameterization):
    config = REWARD.config(
        parameterization=parameterization,
        steps=2,
        learner=BF16,
        optimization={"optimizer": "adamw", "learning_rate": 0.01, "warmup_steps": 0},
    )
    names = ("reward_model", "pairs", "curve", "report")
    outputs = {name: tmp_path / name for name in names}
    given = {"policy": guesser, "samples": samples_of_coins}
    reward(config, given, outputs, StageContext.quiet(tmp_path / "scratch"))
    # A scalar head stays float32.
    kept = {"torch.bfloat16", "torch.float32"} if parameterization == "head" else {"torch.bfloat16"}
    assert {str(each) for each in dtypes(outputs["reward_model"])} == kept


@pytest.fixture
def samples_of_coins(coins, write):
    import polars as pl

    from posttrain.data.schemas import IDENTITY, Completion, completions_table, with_row_ids

    rows = [
        Completion(coin, f"#### {said}", "policy", float(right), right, "")
        for coin in coins[:10]
        for said in ("1", "2")
        for right in [said == coin.answer]
    ]
    table = with_row_ids(completions_table(rows), IDENTITY["completions"])
    assert isinstance(table, pl.DataFrame)
    return write(table)
