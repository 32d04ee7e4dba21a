"""The loop around a scripted sampler and a learner that only listens."""

import pytest

from posttrain.attempts import make_prompts
from posttrain.models.checkpoint import Checkpointer
from posttrain.models.load import load_policy
from posttrain.pipeline.context import StageContext
from posttrain.sampling.fake import LOGPROB, FakeSampler
from posttrain.training.curve import Curve
from tasks.rl.config import RlConfig
from tasks.rl.curriculum import Curriculum
from tasks.rl.loop import Practice, train
from tasks.rl.rollout import RolloutStore


class Listener:
    """Stands in for the learner."""

    def __init__(self, model):
        self.model, self.heard = model, []

    def learn(self, groups, *, step, seed):
        self.heard.append((step, groups))
        return {"loss": float(step)}


@pytest.fixture
def practised(guesser, coins, tmp_path):
    """Six problems: 0 and 1 always solved, 2 and 3 never, 4 and 5 in half of the samples."""
    policy = load_policy(guesser)
    problems = coins[:6]
    place = {problem.id: index for index, problem in enumerate(problems)}

    def script(prompt, index, seed):
        number = place[prompt.id]
        right = number < 2 or (number >= 4 and index % 2 == 0)
        return f"#### {problems[number].answer}" if right else "#### 9"

    events = []
    context = StageContext(0, 1, "cpu", tmp_path, events.append)
    practice = Practice(
        problems=problems,
        prompts=make_prompts(policy.tokenizer, problems),
        curriculum=Curriculum(list(place), "abcdef", solved_N=[2] * 6, attempts_N=[4] * 6),
        learner=Listener(policy.model),
        curve=Curve(context),
        store=RolloutStore(tmp_path),
    )
    sampler = FakeSampler(policy.tokenizer, script)
    config = RlConfig(steps=3, problems_per_step=6, group_size=4, max_tokens=16, minibatches=1)
    train(
        practice,
        sampler,
        config=config,
        context=context,
        checkpointer=Checkpointer(tmp_path, every=0),
    )
    return practice, events


def test_only_groups_with_a_difference_are_learnt_from(practised, coins):
    practice, _ = practised
    assert [step for step, _ in practice.learner.heard] == [0, 1, 2]
    for _, groups in practice.learner.heard:
        assert {g[0].attempt.problem.id for g in groups} == {coins[4].id, coins[5].id}
        for group in groups:
            assert [rollout.advantage for rollout in group] == [0.5, -0.5, 0.5, -0.5]


def test_metrics_count_all_groups(practised):
    practice, events = practised
    metrics = practice.curve.metrics()
    assert metrics["rl/reward"] == pytest.approx(0.5)
    assert metrics["rl/yield"] == pytest.approx(1 / 3)
    assert metrics["rl/all_solved"] == pytest.approx(1 / 3)
    assert metrics["rl/none_solved"] == pytest.approx(1 / 3)
    assert metrics["rl/entropy"] == pytest.approx(-LOGPROB)
    assert metrics["rl/loss"] == 2.0
    done = [event["done"] for event in events if event["kind"] == "progress"]
    assert done == [1, 2, 3]
    # Wall-clock is for the tracker; an artifact must not depend on it.
    assert not any("seconds" in name for name in metrics)


def test_the_curriculum_learns_the_outcomes(practised):
    practice, _ = practised
    rates = practice.curriculum.solved_N / practice.curriculum.attempts_N
    assert rates[:2].min() > 0.8
    assert rates[2:4].max() < 0.2
    assert rates[4:].tolist() == pytest.approx([0.5, 0.5])


def test_rollouts_carry_the_version_of_the_policy_that_drew_them(practised, tmp_path):
    practice, _ = practised
    assert practice.store.merge(tmp_path / "rollouts.parquet") == 3 * 6 * 4
    frames = practice.store._fresh
    assert [frame["policy_version"].unique().to_list() for frame in frames] == [[0], [1], [2]]
