"""Another reward over stored rollouts: the same one changes nothing, and figures are by hand."""

import pytest

from posttrain.data.schemas import ROLLOUTS, Problem
from posttrain.data.tables import read_table
from posttrain.learning.episodes.episode import Span
from posttrain.learning.rewards.port_models import PortModels
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rl.rescore import rescore
from posttrain.learning.rl.rollout import Rollout
from posttrain.learning.rl.store import rollouts_table
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

CONFIG = {
    "steps": 4,
    "problems_per_step": 4,
    "group_size": 4,
    "max_tokens": 8,
    "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    "checkpoint_every": 0,
    "reward": {
        "components": {"correct": "verifier", "brief": "best_length", "tokens": "tokens"},
        "combine": {
            "kind": "lagrangian",
            "maximize": {"correct": 1.0, "brief": {"from": 0.1, "to": 0.4, "over": 3}},
            "limits": {"tokens": {"at_most": 2.0}},
        },
        "bonus_may_outweigh": True,
    },
}


def again(config, table, problems):
    return rescore(config, table, problems, verify=VerifierCache(), models=PortModels())


def test_the_reward_of_the_run_itself_pays_what_it_paid(guesser, coins, coins_path, tmp_path):
    """With multipliers, the best lengths and a schedule, which all go by the steps before."""
    outputs = {name: tmp_path / name for name in ("policy", "rollouts", "curve", "report")}
    config = RlStageConfig(**CONFIG)
    inputs = {"policy": guesser, "problems": coins_path}
    run(config, inputs, outputs, StageContext.quiet(tmp_path / "scratch"))
    table = read_table(outputs["rollouts"], ROLLOUTS)
    found = again(config, table, {problem.id: problem for problem in coins})
    assert (found.num_rollouts, found.num_groups) == (64, 16)
    assert found.reward.mean == found.paid.mean
    assert found.reward.correlation == pytest.approx(1.0)
    assert found.solved[0] == found.solved[1]
    assert found.turned == 0.0


SUM = Problem("sums", "1 + 1 =", "2", 1, "exact")


def rollout(text, reward, *, end="over"):
    return Rollout(
        problem_id=SUM.id,
        source="sums",
        group=0,
        episode=f"{SUM.id}/0",
        token_ids=(7, 8),
        spans=(Span(0, 1, 0, drawn=False), Span(1, 2, 0, drawn=True)),
        logprobs=(-1.0,),
        versions=(0,),
        end=end,
        text=text,
        components=(("correct", reward),),
        reward=reward,
        solved=reward == 1.0,
    )


def test_cut_off_answers_that_fail_turn_pairs_around():
    """Paid 1, 1, 0; with the first one failing 0, 1, 0.

    Two pairs were paid differently, (1, 3) and (2, 3); the first of them is now equal. Means 2/3
    and 1/3; correlation of (1, 1, 0) and (0, 1, 0): covariance 1/9 over deviations 2/9 each.
    """
    drawn = [rollout("#### 2", 1.0, end="tokens"), rollout("#### 2", 1.0), rollout("no", 0.0)]
    table = rollouts_table([(1, each) for each in drawn])
    config = RlStageConfig.parse({"reward": {"truncated": "fails"}}, where="rl")
    found = again(config, table, {SUM.id: SUM})
    assert (found.paid.mean, found.reward.mean) == pytest.approx((2 / 3, 1 / 3))
    assert found.reward.correlation == pytest.approx(0.5)
    assert found.solved == pytest.approx((2 / 3, 1 / 3))
    assert found.turned == 0.5
    assert [each.name for each in found.components] == ["correct"]


def test_a_problem_that_is_not_there_and_an_empty_table_are_refused():
    table = rollouts_table([(1, rollout("a", 0.0))])
    with pytest.raises(UserError, match="of a rollout is not among the problems; name the table"):
        again(RlStageConfig(), table, {})
    with pytest.raises(UserError, match="there are no rollouts in the table"):
        again(RlStageConfig(), table.clear(), {})
