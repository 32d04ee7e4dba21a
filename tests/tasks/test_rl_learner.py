"""The learner: its gradient is the policy gradient, however it is cut up."""

import copy
from dataclasses import replace

import pytest
import torch

from posttrain.attempts import Attempt
from posttrain.errors import UserError
from posttrain.models.load import load_policy
from posttrain.models.logprobs import token_logprobs
from posttrain.models.optim import build_optimizer
from posttrain.records import Problem
from posttrain.rewards import Verdict
from posttrain.sampling.base import FinishReason, Prompt, Sample
from tasks.rl.config import RlConfig
from tasks.rl.learner import Learner
from tasks.rl.loop import describe
from tasks.rl.rollout import has_signal, score_groups


def make_attempt(problem, prompt, index, *, reward, ids, logprobs):
    sample = Sample(prompt.id, index, ids, logprobs, "", FinishReason.STOP, 0)
    return Attempt(problem, sample, Verdict(reward, "correct" if reward else "wrong_answer"))


def groups_of(policy, *, rewards):
    """Two problems with rollouts of unequal length, and the policy's own log-probabilities."""
    problems = [Problem("s", f"p{i}", "1", 1, "exact") for i in range(len(rewards))]
    prompts = [Prompt(p.id, (1, 5 + i, 7)) for i, p in enumerate(problems)]
    attempts = []
    for problem, prompt, given in zip(problems, prompts, rewards, strict=True):
        for index, reward in enumerate(given):
            ids = tuple(range(10 + index, 13 + 2 * index)) + (2,)
            whole = torch.tensor([prompt.token_ids + ids])
            wanted = torch.arange(whole.shape[1])[None] >= 3
            with torch.no_grad():
                found = token_logprobs(policy.model, whole, wanted_BT=wanted).logprobs_BT[0, 3:]
            drawn = {"reward": reward, "ids": ids, "logprobs": tuple(found.tolist())}
            attempts.append(make_attempt(problem, prompt, index, **drawn))
    return score_groups(attempts, prompts, scale="none")


class Frozen:
    """Stands in for the optimiser: keeps the gradient that it is given."""

    def __init__(self, model):
        self.model, self.gradients = model, []

    def step(self, *, factor, max_grad_norm):
        self.gradients.append([p.grad.clone() for p in self.model.parameters()])
        self.model.zero_grad()
        return 0.0


def gradient(policy, groups, **config):
    optimizer = Frozen(policy.model)
    learner = Learner(policy.model, optimizer, None, RlConfig(**config), pad=0, device="cpu")
    metrics = learner.learn(groups, step=0, seed=0)
    return optimizer.gradients, metrics


def test_first_gradient_is_the_policy_gradient_of_the_token_mean(guesser):
    """d/dθ of -(1/N) sum over tokens of A log p, written down naively, row by row."""
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    gradients, metrics = gradient(policy, groups)
    # Advantages by hand: 1 - 1/3, -1/3, -1/3 and -2/3, 1/3, 1/3.
    assert [r.advantage for g in groups for r in g] == pytest.approx(
        [2 / 3, -1 / 3, -1 / 3, -2 / 3, 1 / 3, 1 / 3]
    )
    num_tokens = 2 * (4 + 5 + 6)
    total = 0.0
    for group in groups:
        for rollout in group:
            logits = policy.model(torch.tensor([rollout.ids])).logits[0, 2:-1]
            targets = torch.tensor(rollout.attempt.sample.token_ids)
            logprobs = logits.log_softmax(-1)[torch.arange(len(targets)), targets]
            total = total - rollout.advantage * logprobs.sum() / num_tokens
    total.backward()
    for found, parameter in zip(gradients[0], policy.model.parameters(), strict=True):
        torch.testing.assert_close(found, parameter.grad, atol=1e-6, rtol=1e-4)
    assert metrics["clip_fraction"] == 0
    assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)


def test_any_split_into_micro_batches_gives_the_one_batch_gradient(guesser):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    whole, reference = gradient(policy, groups, micro_batch_tokens=10_000)
    for budget in (1, 20):
        parts, metrics = gradient(policy, groups, micro_batch_tokens=budget)
        assert metrics["loss"] == pytest.approx(reference["loss"], abs=1e-6)
        for one, many in zip(whole[0], parts[0], strict=True):
            torch.testing.assert_close(one, many, atol=1e-6, rtol=0)


def test_minibatches_are_whole_groups_and_cover_all(guesser):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0]] * 5)
    learner = Learner(
        policy.model, None, None, RlConfig(epochs=2, minibatches=2), pad=0, device="cpu"
    )
    parts = list(learner._minibatches(groups, step=3, seed=0))
    assert [len(part) for part in parts] == [3, 2, 3, 2]
    for epoch in (parts[:2], parts[2:]):
        found = sorted(g[0].attempt.problem.prompt for part in epoch for g in part)
        assert found == ["p0", "p1", "p2", "p3", "p4"]
    assert parts[0] != parts[2]


def test_partial_credit_is_not_paid(guesser):
    policy = load_policy(guesser)
    (group,) = groups_of(policy, rewards=[[1.0, 0.0, 0.0]])
    partly = Verdict(0.5, "wrong_answer")
    attempts = [replace(rollout.attempt, verdict=partly) for rollout in group[1:]]
    prompts = [Prompt("p", group[0].prompt_ids)]
    (scored,) = score_groups([group[0].attempt, *attempts], prompts, scale="none")
    assert [rollout.reward for rollout in scored] == [1.0, 0.0, 0.0]
    assert [rollout.advantage for rollout in scored] == pytest.approx([2 / 3, -1 / 3, -1 / 3])


def test_groups_without_a_difference_have_no_signal(guesser):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    assert [has_signal(group) for group in groups] == [False, False, True]
    metrics = describe(groups)
    assert metrics["yield"] == pytest.approx(1 / 3)
    assert metrics["all_solved"] == pytest.approx(1 / 3)
    assert metrics["none_solved"] == pytest.approx(1 / 3)
    assert metrics["reward"] == pytest.approx(0.5)
    assert metrics["length"] == pytest.approx(4.5)


def test_a_sampler_with_stale_weights_stops_the_run(guesser):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0]])
    with torch.no_grad():
        policy.model.lm_head.weight.mul_(1.5)
    with pytest.raises(UserError, match="sampler's log-probabilities differ .* stale weights"):
        gradient(policy, groups)


def test_a_loss_that_is_not_finite_stops_the_run_before_the_update(guesser):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0]])
    with torch.no_grad():
        policy.model.model.norm.weight[0] = float("nan")
    before = copy.deepcopy(policy.model.state_dict())
    optimizer = build_optimizer(policy.model, learning_rate=1.0)
    learner = Learner(policy.model, optimizer, None, RlConfig(), pad=0, device="cpu")
    with pytest.raises(UserError, match="rl step 5: the loss is nan"):
        learner.learn(groups, step=4, seed=0)
    after = policy.model.state_dict()
    assert all(torch.equal(after[k].nan_to_num(), v.nan_to_num()) for k, v in before.items())


@pytest.mark.parametrize(
    ("reward", "shift", "clipped"),
    [
        # Ratios e^0.24 = 1.271 and e^0.25 = 1.284 about 1 + 0.28, for what should be more likely.
        (1.0, 0.24, False),
        (1.0, 0.25, True),
        # Ratios e^-0.22 = 0.803 and e^-0.23 = 0.795 about 1 - 0.2, for what should be less likely.
        (0.0, -0.22, False),
        (0.0, -0.23, True),
        # The other side of each is never clipped.
        (1.0, -0.5, False),
        (0.0, 0.5, False),
    ],
)
def test_the_ratio_is_clipped_higher_above_than_below(guesser, reward, shift, clipped):
    policy = load_policy(guesser)
    (group,) = groups_of(policy, rewards=[[reward, 1.0 - reward]])
    rollout = group[0]
    sample = rollout.attempt.sample
    old = tuple(value - shift for value in sample.logprobs)
    attempt = replace(rollout.attempt, sample=replace(sample, logprobs=old))
    config = RlConfig(max_logprob_gap=1.0)
    learner = Learner(policy.model, Frozen(policy.model), None, config, pad=0, device="cpu")
    metrics = learner.learn([[replace(rollout, attempt=attempt)]], step=0, seed=0)
    assert metrics["clip_fraction"] == float(clipped)
    assert metrics["logprob_gap"] == pytest.approx(abs(shift), abs=1e-4)
