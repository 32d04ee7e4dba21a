"""Rollouts that bear no loss leave the mask and every denominator, also in a replay."""

from pathlib import Path

import pytest
import torch

from posttrain.data.schemas import Problem
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.verifiers.judge import NO_GRADE
from posttrain.learning.rl.batch import bearing_loss, with_advantages
from posttrain.learning.rl.drawn import as_groups
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.passes import ModelPasses
from posttrain.learning.rl.replay import replay
from posttrain.learning.rl.rewarder import Rewarder
from posttrain.learning.rl.rollout_batch import informative_groups, rollout_batch
from posttrain.learning.rl.store import rollouts_table
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt, Sample
from posttrain.learning.training.config import LearnerConfig
from posttrain.learning.training.prepare import Trainable
from posttrain.stage.context import StageContext
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

PROMPT = (1, 5, 7)
STOP, CUT = FinishReason.STOP, FinishReason.LENGTH


class Collecting:
    """Stands in for the optimizer: keeps the gradient that it is given."""

    def __init__(self, model):
        self.model, self.gradient = model, []

    def begin(self, learning_rate):
        pass

    def backward(self, loss, *, last):
        loss.backward()

    def step(self, *, learning_rate, max_grad_norm):
        self.gradient = [p.grad.clone() for p in self.model.parameters()]
        self.model.zero_grad()
        return 0.0


def rollout(policy, ids, *, score, finish):
    """As the stage would make it of a sample that the policy itself drew."""
    whole = torch.tensor([PROMPT + ids])
    wanted = torch.arange(whole.shape[1])[None] >= len(PROMPT)
    with torch.no_grad():
        found = token_logprobs(policy.model, whole, wanted_BT=wanted).logprobs_BT[0, len(PROMPT) :]
    sample = Sample("p", 0, ids, tuple(found.tolist()), "", finish, 0)
    problem = Problem("s", "p", "1", 1, "exact")
    groups = as_groups([sample], [problem], [Prompt("p", PROMPT)])
    rewarder = Rewarder(RewardStack(), lambda answers: [score for _ in answers])
    return rewarder.rewarded(groups, [problem], step=0)[0][0]


def learner_of(policy, folder, **config):
    return PolicyLearner(
        passes=ModelPasses(
            trainable=Trainable(policy.model, LearnerConfig(), None, None),
            reference=None,
            critic=None,
            config=RlStageConfig(**{"max_tokens": 72, **config}),
            pad=0,
            device="cpu",
        ),
        optimizer=Collecting(policy.model),
        scratch=folder,
    )


def naive_gradient(policy, weighted, *, denominator):
    """d/dθ of ``-1/denominator Σ A Σ_t log p``, row by row."""
    policy.model.zero_grad()
    for each, advantage in weighted:
        logits = policy.model(torch.tensor([each.token_ids])).logits[0, len(PROMPT) - 1 : -1]
        targets = torch.tensor(each.token_ids)[each.drawn]
        logprobs = logits.log_softmax(-1)[torch.arange(len(targets)), targets]
        (-advantage / denominator * logprobs.sum()).backward()
    return [p.grad.clone() for p in policy.model.parameters()]


RIGHT, WRONG = Score(1.0, "correct"), Score(0.0, "wrong_answer")
LONG = tuple(range(10, 20))


def three(policy, *, last):
    """Right in 2 tokens, wrong in 3, and a third of 10 tokens: cut off, or without a grade."""
    score, finish = last
    return [
        rollout(policy, (10, 2), score=RIGHT, finish=STOP),
        rollout(policy, (11, 12, 2), score=WRONG, finish=STOP),
        rollout(policy, LONG, score=score, finish=finish),
    ]


@pytest.mark.parametrize(
    ("truncated", "last", "advantages"),
    [
        # Mean reward of all three is 1/3: 1 - 1/3 and 0 - 1/3.
        ("mask", (WRONG, CUT), (2 / 3, -1 / 3)),
        # Left out of the mean too, which is 1/2.
        ("drop", (WRONG, CUT), (1 / 2, -1 / 2)),
        ("keep", (NO_GRADE, STOP), (1 / 2, -1 / 2)),
    ],
)
@pytest.mark.parametrize(
    ("aggregation", "denominators"),
    [
        # The tokens of the two that are left; these two; these two times 72.
        ({"kind": "token_mean"}, (5, 5)),
        ({"kind": "sequence_mean_token_mean"}, (2 * 2, 2 * 3)),
        ({"kind": "constant_length"}, (2 * 72, 2 * 72)),
    ],
)
def test_they_leave_the_gradient_and_its_denominator(
    guesser, tmp_path, truncated, last, advantages, aggregation, denominators
):
    policy = load_policy(guesser)
    rollouts = three(policy, last=last)
    algorithm = {"advantage": {"truncated": truncated}, "aggregation": aggregation}
    learner = learner_of(policy, tmp_path, algorithm=algorithm)
    (samples,) = bearing_loss(learner.training_samples([rollouts], step=0))
    assert [sum(sample.drawn) for sample in samples] == [2, 3]
    learner.update(samples, step=0, index=0, seed=0)
    found = learner.optimizer.gradient
    weights = [2 * a / d for a, d in zip(advantages, denominators, strict=True)]
    expected = naive_gradient(policy, list(zip(rollouts, weights, strict=False)), denominator=2)
    # Float32 sums in another order: 2e-6 of the largest, in transformers' own pass as in ours.
    largest = max(float(gradient.abs().max()) for gradient in expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5 * largest, rtol=1e-4)


def test_those_that_are_kept_count(guesser, tmp_path):
    """The same three where `truncated` is keep: 15 tokens, and a third advantage of -1/3."""
    policy = load_policy(guesser)
    rollouts = three(policy, last=(WRONG, CUT))
    learner = learner_of(policy, tmp_path)
    (samples,) = bearing_loss(learner.training_samples([rollouts], step=0))
    learner.update(samples, step=0, index=0, seed=0)
    found = learner.optimizer.gradient
    weighted = list(zip(rollouts, (2 / 3, -1 / 3, -1 / 3), strict=True))
    for one, other in zip(found, naive_gradient(policy, weighted, denominator=15), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_a_group_of_which_nothing_is_left_has_no_sample(guesser, tmp_path):
    policy = load_policy(guesser)
    cut = [rollout(policy, LONG, score=v, finish=CUT) for v in (RIGHT, WRONG)]
    whole = [rollout(policy, LONG, score=v, finish=STOP) for v in (RIGHT, WRONG)]
    learner = learner_of(policy, tmp_path, algorithm={"advantage": {"truncated": "drop"}})
    groups = [cut, [each._replace(group=1) for each in whole]]
    (samples,) = bearing_loss(learner.training_samples(groups, step=0))
    assert [sample.advantages[0] for sample in samples] == [0.5, -0.5]


def test_what_has_no_grade_says_so_in_the_table(guesser):
    policy = load_policy(guesser)
    unscored = rollout(policy, LONG, score=NO_GRADE, finish=STOP)
    wrong = rollout(policy, LONG, score=WRONG, finish=STOP)
    assert (unscored.components, wrong.components) == ((("correct", None),), (("correct", 0.0),))
    assert (unscored.reward, unscored.solved) == (None, None)
    assert (wrong.reward, wrong.solved) == (0.0, False)
    assert (unscored.judged, wrong.judged) == (False, True)
    table = rollouts_table([(1, unscored), (1, wrong)])
    assert table["reward"].to_list() == [None, 0.0]
    assert table["solved"].to_list() == [None, False]
    assert table["components"].to_list() == [
        [{"name": "correct", "value": None}],
        [{"name": "correct", "value": 0.0}],
    ]
    assert rollout_batch([wrong]).scored_B is None
    both = [each._replace(trained=True) for each in (unscored, wrong)]
    assert informative_groups([both], RlStageConfig().algorithm.advantage, by="correct") == [False]
    samples = learner_of(policy, Path()).training_samples([both], step=0)
    assert [sample is None for sample in samples[0]] == [True, False]
    (group,) = with_advantages([both], samples)
    assert [each.mean_advantage for each in group] == [0.0, 0.0]


def test_the_stored_rollouts_lead_to_the_same_weights(guesser, coins_path, tmp_path):
    """Completions end at 5 tokens at the latest, which cuts some off: those teach nothing."""
    given = {"policy": guesser, "problems": coins_path}
    probed = {name: tmp_path / name for name in ("samples", "solve_rates")}
    probe(ProbeConfig(max_tokens=8), given, probed, StageContext.quiet(tmp_path / "scratch"))
    config = RlStageConfig(
        steps=4,
        problems_per_step=6,
        group_size=4,
        max_tokens=4,
        temperature=1.5,
        algorithm={"preset": "dapo", "advantage": {"truncated": "drop"}},
        draw={"train_on": "all"},
        optimization={"warmup_steps": 0},
        updates={"minibatches": 2},
    )
    roles = ("policy", "rollouts", "curve", "report")
    outputs = {name: tmp_path / "run" / name for name in roles}
    Path(outputs["policy"]).mkdir(parents=True)
    inputs = {**given, "solve_rates": probed["solve_rates"]}
    events = []
    context = StageContext(0, 1, "cpu", tmp_path / "one", emit=events.append)
    run(config, inputs, outputs, context)
    logged = [e["metrics"] for e in events if e["kind"] == "metrics" and "rl/loss" in e["metrics"]]
    assert sum(each.get("rl/rollouts_masked", 0.0) for each in logged) > 0
    digest = weights_digest(load_policy(outputs["policy"]).model)
    again = StageContext.quiet(tmp_path / "two")
    assert replay(config, {"policy": guesser}, outputs["rollouts"], again) == digest
