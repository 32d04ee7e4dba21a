"""An answer that was cut off: one rule, the same wherever answers are judged."""

import pytest
import torch

from posttrain.data.schemas import Problem
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.credit_assignment import advantages
from posttrain.learning.rewards.components.base import Answers
from posttrain.learning.rewards.components.model import ModelComponent
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.stack import StackAtWork
from posttrain.learning.rewards.truncated import judged
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.rollout import Rollout
from posttrain.learning.rl.rollout_batch import rollout_batch
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt, Sample, SamplingParams
from posttrain.learning.rollouts.scoring import sample_and_score
from posttrain.stage.errors import UserError

RIGHT = Score(1.0, "correct")


@pytest.mark.parametrize(
    ("rule", "value", "reason"),
    [
        ("counts", 1.0, "correct"),
        ("masked", 1.0, "correct"),
        ("fails", 0.0, "cut_off"),
        ("dropped", None, "cut_off"),
    ],
)
def test_a_cut_off_text_that_states_the_right_answer(rule, value, reason):
    assert judged(RIGHT, truncated=True, rule=rule) == Score(value, reason)
    assert judged(RIGHT, truncated=False, rule=rule) is RIGHT


@pytest.mark.parametrize(
    ("rule", "rewards", "solved"),
    [
        ("counts", [1.0, 1.0], [True, True]),
        ("masked", [1.0, 1.0], [True, True]),
        ("fails", [1.0, 0.0], [True, False]),
        ("dropped", [1.0, None], [True, None]),
    ],
)
def test_the_same_rule_in_a_reward(rule, rewards, solved):
    group = Answers(Problem("s", "p", "1", 1, "exact"), ("a", "b"), (1, 9), (False, True))
    stack = RewardStack(truncated=rule)
    found = StackAtWork(lambda answers: [RIGHT for _ in answers]).earned(stack, [group], step=0)
    assert (found.rewards, found.solved) == (rewards, solved)


CUT = Answers(Problem("s", "p", "1", 1, "exact"), ("a", "b"), (9, 1), (False, True))


def test_what_was_dropped_is_seen_by_no_component_and_by_no_combination():
    """The multiplier's mean is of the kept answer's 9 tokens; the best length is 9, and not 1."""
    parts = {"correct": "verifier", "size": "tokens", "best": {"kind": "best_length"}}
    combine = {"kind": "lagrangian", "maximize": {"correct": 1}, "limits": {"size": 4}}
    settings = {"components": parts, "combine": combine, "bonus_may_outweigh": True}
    stack = RewardStack.parse(settings | {"truncated": "dropped"}, where="rl.reward")
    work = StackAtWork(lambda answers: [RIGHT for _ in answers])
    found = work.earned(stack, [CUT], step=0)
    assert found.scores == {"correct": [1.0, None], "size": [9.0, None], "best": [0.0, None]}
    assert found.rewards[1] is None
    assert list(work.state["components"]["best"].values()) == [9]
    alone = StackAtWork(lambda answers: [RIGHT for _ in answers])
    alone.earned(stack, [Answers(CUT.problem, ("a",), (9,), (False,))], step=0)
    assert work.state == alone.state


def test_what_was_dropped_has_no_reward_where_nothing_pays():
    """With all weights 0 the kept answer earns 0, of which a method may still use divergences."""
    combine = {"kind": "sum", "weights": {"correct": 0}}
    stack = RewardStack.parse({"combine": combine, "truncated": "dropped"}, where="rl.reward")
    found = StackAtWork(lambda answers: [RIGHT for _ in answers]).earned(stack, [CUT], step=0)
    assert found.rewards == [0.0, None]


def liked(**settings):
    model = {"kind": "model", "models": ["m"], **settings}
    stack = {"components": {"liked": model}, "solved_by": "liked", "truncated": "fails"}
    return RewardStack.parse(stack, where="rl.reward")


def test_what_fails_gets_the_least_score_of_a_wrong_answer_and_is_refused_without_one(monkeypatch):
    monkeypatch.setattr(ModelComponent, "score_all", lambda *_: [[0.5, 0.5]])
    found = StackAtWork(lambda _: []).earned(liked(squash="sigmoid"), [CUT], step=0)
    assert found.rewards == [0.5, 0.0]
    with pytest.raises(UserError, match="the least score of 'liked', which has none; set solved_b"):
        liked()


def test_what_pays_when_right_pays_nothing_for_what_failed_as_it_was_cut_off():
    components = {"correct": "verifier", "again": {"kind": "verifier", "when": "correct"}}
    stack = RewardStack.parse({"components": components, "truncated": "fails"}, where="rl.reward")
    group = Answers(Problem("s", "p", "1", 1, "exact"), ("a", "b"), (1, 9), (False, True))
    found = StackAtWork(lambda answers: [RIGHT for _ in answers]).earned(stack, [group], step=0)
    assert found.rewards == [2.0, 0.0]


def rollout(reward, *, cut=False, components=()):
    return Rollout(
        problem_id="p",
        source="s",
        group=0,
        episode="p/0",
        token_ids=(1, 2),
        spans=(),
        logprobs=(0.0, 0.0),
        versions=(0,),
        end="tokens" if cut else "over",
        text="",
        components=components,
        reward=reward,
        trained=True,
    )


def test_what_is_masked_bears_no_loss_and_moves_the_mean_of_its_group():
    """Rewards 1, 1, 0 with the second cut off: mean 2/3, so 1/3, nothing, -2/3."""
    config = RlConfig.parse({"reward": {"truncated": "masked"}}, where="rl")
    batch = rollout_batch([rollout(1.0), rollout(1.0, cut=True), rollout(0.0)])
    found = advantages(config.algorithm_at_work, batch)
    assert found.advantages_BT[:, 0].tolist() == pytest.approx([1 / 3, 0.0, -2 / 3])
    assert found.bears_loss_B.tolist() == [True, False, True]


def test_two_words_about_what_was_cut_off_are_refused():
    settings = {
        "reward": {"truncated": "fails"},
        "algorithm": {"advantage": {"truncated": "mask"}},
    }
    with pytest.raises(UserError, match=r"rl: reward\.truncated fails and algorithm\.advantage\."):
        RlConfig.parse(settings, where="rl")


APART = {
    "reward": {
        "components": {"correct": "verifier", "brief": "verifier"},
        "combine": {"kind": "advantages", "weights": {"brief": 0.5}},
    },
    "algorithm": {"advantage": {"scale": "sample", "epsilon": 0.0}},
}


def test_advantages_of_each_component_are_normalized_by_themselves_and_then_added():
    """By hand: correct (1, 1, 0, 0) and brief (1, 0, 0, 0), deviations sqrt(1/3) and 1/2.

    Advantages of correct: 0.5 / sqrt(1/3) = 0.8660 and -0.8660; of brief: 0.75 / 0.5 = 1.5 and
    -0.25 / 0.5 = -0.5. With weight 1/2 for brief: 1.6160, 0.6160, -1.1160, -1.1160. The fifth could
    not be judged, and enters no statistic.
    """
    config = RlConfig.parse(APART, where="rl")
    scores = [(1.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.0, 0.0)]
    rollouts = [rollout(a + b, components=(("correct", a), ("brief", b))) for a, b in scores]
    lost = rollout(None, components=(("correct", None), ("brief", 1.0)))
    weights = config.reward.combine.apart(config.reward.components)
    batch = rollout_batch([*rollouts, lost], apart=weights)
    found = advantages(config.algorithm_at_work, batch).advantages_BT[:, 0]
    hand = [0.8660254 + 0.75, 0.8660254 - 0.25, -0.8660254 - 0.25, -0.8660254 - 0.25, 0.0]
    assert found.tolist() == pytest.approx(hand)


def test_a_score_that_was_not_known_without_a_weight_is_left_out_once_it_has_one():
    """Drawn while `brief` weighed 0: the reward is known, the component's advantage is not."""
    config = RlConfig.parse(APART, where="rl")
    known = [rollout(a, components=(("correct", a), ("brief", 0.0))) for a in (1.0, 0.0)]
    late = rollout(1.0, components=(("correct", 1.0), ("brief", None)))
    batch = rollout_batch([*known, late], apart={"correct": 1.0, "brief": 0.5})
    assert batch.scored_B.tolist() == [True, True, False]
    found = advantages(config.algorithm_at_work, batch).advantages_BT[:, 0]
    # Deviation of 1 and 0 over one degree of freedom: sqrt(1/2).
    assert found.tolist() == pytest.approx([0.5**0.5, -(0.5**0.5), 0.0], abs=1e-6)


def test_where_nothing_is_divided_apart_is_the_same_as_together():
    batch = [
        rollout(a + 0.5 * b, components=(("correct", a), ("brief", b)))
        for a, b in [(1.0, 1.0), (1.0, 0.0), (0.0, 0.5)]
    ]
    apart = rollout_batch(batch, apart={"correct": 1.0, "brief": 0.5})
    together = advantages(Algorithm(), rollout_batch(batch)).advantages_BT
    assert torch.allclose(advantages(Algorithm(), apart).advantages_BT, together)


@pytest.mark.parametrize(
    ("algorithm", "told"),
    [
        ("ppo", "algorithm.advantage gae goes by values; take"),
        ({"overlong": {}}, "algorithm.overlong is none of them; set it to null"),
        (
            {"regularizers": {"kl": {"coefficient": 0.1, "place": "reward"}}},
            "a regularizer pays in the reward; set its place to loss",
        ),
    ],
)
def test_what_is_of_no_component_is_refused_where_each_has_its_own_advantages(algorithm, told):
    with pytest.raises(UserError) as error:
        RlConfig.parse(APART | {"algorithm": algorithm}, where="rl")
    assert told in str(error.value)


class Cutting:
    """An engine whose second sample of each prompt is cut off."""

    context_length = 8

    def sample(self, prompts, params):
        ends = [FinishReason.STOP, FinishReason.LENGTH]
        return [
            Sample(prompt.id, 0, (1,), (0.0,), "#### 1", end, 0)
            for prompt in prompts
            for end in ends
        ]


@pytest.mark.parametrize(
    ("rule", "values"), [("counts", [1.0, 1.0]), ("fails", [1.0, 0.0]), ("dropped", [1.0, None])]
)
def test_the_same_rule_where_a_probe_or_an_evaluation_scores(rule, values):
    problem = Problem("s", "p", "1", 1, "exact")
    params = SamplingParams(max_tokens=1, num_samples=2, seed=0)
    prompts = [Prompt(problem.id, (5,))]
    made = sample_and_score(
        Cutting(), [problem], prompts, params, verify=VerifierCache(), truncated=rule
    )
    assert [each.score.value for each in made] == values
    assert [each.completion("p").verified for each in made][0] is True
