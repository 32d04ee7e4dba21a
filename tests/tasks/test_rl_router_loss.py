"""RL of a mixture of experts: its router's loss is one number however an update is cut."""

import pytest

from posttrain.data.schemas import CURVE
from posttrain.data.tables import read_table
from posttrain.learning.models.load import save_policy
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run
from tests.architectures import model_of

FILES = ("policy", "rollouts", "curve", "report")


def curve_of(folder, model, coins, coins_path, **learner):
    tokenizer = train_tokenizer([problem.prompt for problem in coins], vocab_size=265)
    # Many ends, so that answers of a random model differ in length, which is rewarded.
    model.generation_config.eos_token_id = list(range(2, 60))
    save_policy(model, tokenizer, folder / "model")
    outputs = {name: folder / name for name in FILES}
    brief = {"correct": "verifier", "brief": {"kind": "shortness", "scale": 0.1}}
    config = RlStageConfig(
        steps=1, problems_per_step=4, group_size=4, max_tokens=8,
        reward={"components": brief, "bonus_may_outweigh": True},
        learner=learner.pop("learner", {}), updates=learner,
    )  # fmt: skip
    inputs = {"policy": folder / "model", "problems": coins_path}
    run(config, inputs, outputs, StageContext.quiet(folder / "scratch"))
    curve = read_table(outputs["curve"], CURVE)
    return dict(zip(curve["metric"], curve["value"], strict=True))


@pytest.mark.slow  # three runs
def test_it_adds_to_the_gradient_and_is_the_same_in_one_part_and_in_many(
    tmp_path, coins, coins_path
):
    found = {}
    for name, options in {
        "without": {},
        "whole": {"learner": {"router_loss": 1.0}, "micro_batch_tokens": 4096},
        "cut": {"learner": {"router_loss": 1.0}, "micro_batch_tokens": 40},
    }.items():
        (tmp_path / name).mkdir()
        model = model_of("qwen3_moe", initializer_range=0.02)
        found[name] = curve_of(tmp_path / name, model, coins, coins_path, **options)
    for metric in ("rl/router_loss", "rl/grad_norm", "rl/loss"):
        assert found["cut"][metric] == pytest.approx(found["whole"][metric], rel=1e-4)
    assert found["whole"]["rl/grad_norm"] != pytest.approx(found["without"]["rl/grad_norm"])
    assert "rl/router_loss" not in found["without"]
    # Two experts a token; four would be the same two for all.
    assert 1.8 < found["whole"]["rl/router_loss"] < 4


def test_a_dense_policy_is_refused(tmp_path, coins, coins_path):
    with pytest.raises(UserError, match=r"learner\.router_loss: the architecture 'qwen2' has no"):
        curve_of(tmp_path, model_of("qwen2"), coins, coins_path, learner={"router_loss": 0.1})


def test_its_metric_is_declared():
    asked = RlStageConfig(learner={"router_loss": 0.1})
    assert "rl/router_loss" in asked.metrics()
    assert "rl/router_loss" not in RlStageConfig().metrics()
