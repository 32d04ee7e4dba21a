"""The learner: its gradient is the policy gradient, however it is cut up."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from posttrain.data.schemas import Problem
from posttrain.learning.algorithms.token_weights.base import TokenWeight
from posttrain.learning.episodes.episode import Span
from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.models.optim import NotFiniteError
from posttrain.learning.rl.batch import TrainBatch, bearing_loss, with_advantages
from posttrain.learning.rl.credit import with_old_logprobs
from posttrain.learning.rl.critic import Critic
from posttrain.learning.rl.drawn import as_groups
from posttrain.learning.rl.generation import Generation
from posttrain.learning.rl.generations import Buffer
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.metrics import describe
from posttrain.learning.rl.model_config import ValueModelConfig
from posttrain.learning.rl.passes import ModelPasses
from posttrain.learning.rl.reference_policy import ReferencePolicy
from posttrain.learning.rl.references.following import AveragedReference, Periodic
from posttrain.learning.rl.references.following import Frozen as FrozenReference
from posttrain.learning.rl.rollout import marked
from posttrain.learning.rl.rollout_batch import informative_groups, rollout_batch
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt, Sample
from posttrain.learning.training.config import LearnerConfig
from posttrain.learning.training.failed_batch import load_failed_batch
from posttrain.learning.training.prepare import Trainable
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig

PPO = {
    "advantage": {"kind": "gae", "gamma": 0.9, "lam": 0.8},
    "critic": {"coefficient": 0.5, "clip": None},
}


def drew(prompt, index, *, ids, logprobs):
    return Sample(prompt.id, index, ids, logprobs, "", FinishReason.STOP, 0)


def groups_of(policy, *, rewards):
    """Two problems with rollouts of unequal length, and the policy's own log-probabilities."""
    problems = [Problem("s", f"p{i}", "1", 1, "exact") for i in range(len(rewards))]
    prompts = [Prompt(p.id, (1, 5 + i, 7)) for i, p in enumerate(problems)]
    samples = []
    for prompt, given in zip(prompts, rewards, strict=True):
        for index in range(len(given)):
            ids = tuple(range(10 + index, 13 + 2 * index)) + (2,)
            whole = torch.tensor([prompt.token_ids + ids])
            wanted = torch.arange(whole.shape[1])[None] >= 3
            with torch.no_grad():
                found = token_logprobs(policy.model, whole, wanted_BT=wanted).logprobs_BT[0, 3:]
            samples.append(drew(prompt, index, ids=ids, logprobs=tuple(found.tolist())))
    return [
        [each._replace(reward=r, solved=r >= 1) for each, r in zip(group, given, strict=True)]
        for group, given in zip(as_groups(samples, problems, prompts), rewards, strict=True)
    ]


def samples_of(learner, groups, *, step=0):
    """What of the groups bears loss."""
    return bearing_loss(learner.training_samples(groups, step=step))


def credited(policy, groups):
    """The groups with the advantages that are learned from."""
    trained = [marked(group, trained=True) for group in groups]
    samples = learner_of(policy).training_samples(trained, step=0)
    return with_advantages(trained, samples)


class Frozen:
    """Stands in for the optimizer: keeps the gradient that it is given."""

    def __init__(self, model):
        self.model, self.gradients = model, []

    def begin(self, learning_rate):
        pass

    def backward(self, loss, *, last):
        loss.backward()

    def step(self, *, learning_rate, max_grad_norm):
        self.gradients.append([p.grad.clone() for p in self.model.parameters()])
        self.model.zero_grad()
        return 0.0


def learner_of(policy, optimizer=None, *, folder=Path(), reference=None, critic=None, **config):
    return PolicyLearner(
        passes=ModelPasses(
            trainable=Trainable(policy.model, LearnerConfig(), None, None),
            reference=reference,
            critic=critic,
            config=RlStageConfig(**config),
            pad=0,
            device="cpu",
        ),
        optimizer=optimizer or Frozen(policy.model),
        scratch=folder,
    )


def gradient(policy, groups, **config):
    learner = learner_of(policy, **config)
    samples = [x for group in samples_of(learner, groups, step=0) for x in group]
    metrics = learner.update(samples, step=0, index=0, seed=0)
    return learner.optimizer.gradients, metrics


def test_first_gradient_is_the_policy_gradient_of_the_token_mean(guesser):
    """d/dθ of -(1/N) sum over tokens of A log p, written down naively, row by row."""
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    gradients, metrics = gradient(policy, groups)
    groups = credited(policy, groups)
    # Advantages by hand: 1 - 1/3, -1/3, -1/3 and -2/3, 1/3, 1/3.
    assert [r.mean_advantage for g in groups for r in g] == pytest.approx(
        [2 / 3, -1 / 3, -1 / 3, -2 / 3, 1 / 3, 1 / 3]
    )
    num_tokens = 2 * (4 + 5 + 6)
    total = 0.0
    for group in groups:
        for rollout in group:
            logits = policy.model(torch.tensor([rollout.token_ids])).logits[0, 2:-1]
            targets = torch.tensor(rollout.token_ids)[rollout.drawn]
            logprobs = logits.log_softmax(-1)[torch.arange(len(targets)), targets]
            total = total - rollout.mean_advantage * logprobs.sum() / num_tokens
    total.backward()
    for found, parameter in zip(gradients[0], policy.model.parameters(), strict=True):
        torch.testing.assert_close(found, parameter.grad, atol=1e-6, rtol=1e-4)
    assert metrics["clip_fraction"] == 0
    assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)


def test_any_split_into_micro_batches_gives_the_one_batch_gradient(guesser):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    whole, reference = gradient(policy, groups, updates={"micro_batch_tokens": 10_000})
    for budget in (1, 20):
        parts, metrics = gradient(policy, groups, updates={"micro_batch_tokens": budget})
        assert metrics["loss"] == pytest.approx(reference["loss"], abs=1e-6)
        for one, many in zip(whole[0], parts[0], strict=True):
            torch.testing.assert_close(one, many, atol=1e-6, rtol=0)


def test_minibatches_are_whole_groups_and_cover_all(guesser):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0]] * 5)
    buffer = Buffer(epochs=2, minibatches=2)
    samples = samples_of(learner_of(policy), groups, step=3)
    buffer.open(Generation(3, groups), samples)
    parts = buffer.plan(seed=0)
    assert [len(part) for part in parts] == [6, 4, 6, 4]
    firsts = [[sample.token_ids[1] for sample in part] for part in parts]
    for epoch in (firsts[:2], firsts[2:]):
        assert sorted(epoch[0] + epoch[1]) == sorted([5, 6, 7, 8, 9] * 2)
    assert all(part[::2] == part[1::2] for part in firsts)
    assert firsts[0] != firsts[2]
    assert buffer.plan(seed=0) == parts
    assert buffer.plan(seed=1) != parts


@pytest.mark.parametrize("minibatches", [1, 2])
def test_gspo_clips_nothing_where_bfloat16_alone_moves_log_probabilities(guesser, minibatches):
    """The optimizer leaves the policy as it is, so every ratio is 1, however it is rounded."""
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0, 0.0, 1.0, 0.0, 1.0]] * 4)
    # Few rows fit into a batch, so that which are padded, and how far, goes by the minibatch.
    updates = {"minibatches": minibatches, "micro_batch_tokens": 40}
    learner = learner_of(policy, algorithm="gspo", updates=updates)
    bf16 = Trainable(policy.model, LearnerConfig(precision="bf16"), None, None)
    learner.passes.trainable = bf16
    buffer = Buffer(epochs=1, minibatches=minibatches)
    buffer.open(Generation(0, groups), samples_of(learner, groups))
    for metrics in buffer.updates(learner, seed=0):
        buffer.note(metrics)
        assert metrics["ratio_mean"] == 1.0
        assert metrics["clip_fraction"] == 0.0
    assert buffer.num_done == minibatches
    # The fault is there: an engine in float32 is further away than GSPO's range is wide.
    assert buffer.totals["logprob_gap"][0] > 1e-3


def test_old_log_probabilities_are_computed_in_the_batches_of_their_updates(guesser):
    policy = load_policy(guesser)
    groups = samples_of(learner_of(policy), groups_of(policy, rewards=[[1.0, 0.0]] * 3))

    class Passes:
        present_logprobs, asked = None, []

        def rows(self, part, _compute):
            self.asked.append(list(part))
            return [(float(len(self.asked)),)] * len(part)

    passes = Passes()
    found = with_old_logprobs(passes, groups, [[2, 0], [1]])
    assert passes.asked == [[*groups[2], *groups[0]], groups[1]]
    assert [[each.old_logprobs for each in group] for group in found] == [
        [(1.0,), (1.0,)],
        [(2.0,), (2.0,)],
        [(1.0,), (1.0,)],
    ]


def test_a_buffer_goes_on_from_its_state(guesser):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0]] * 3)
    buffer, again = Buffer(epochs=1, minibatches=3), Buffer(epochs=1, minibatches=3)
    buffer.open(
        Generation(7, groups, {"rounds": 2.0}),
        samples_of(learner_of(policy), groups, step=7),
    )
    buffer.note({"loss": 0.25})
    again.load_state_dict(buffer.state_dict())
    assert again.plan(seed=0) == buffer.plan(seed=0)
    assert (again.num_done, again.totals) == (1, {"loss": [0.25]})
    assert again.close() == Generation(7, groups, {"rounds": 2.0})


@pytest.mark.parametrize(
    ("ids", "logprobs", "message"),
    [
        ((), (), "has 0 tokens and 0 log-probabilities"),
        ((3, 4), (-1.0,), "has 2 tokens and 1 log-probabilities"),
        ((3,), (-math.inf,), "a log-probability that is not finite"),
    ],
)
def test_a_sample_that_cannot_be_learned_from_is_refused(ids, logprobs, message):
    problem, prompt = Problem("s", "p", "1", 1, "exact"), Prompt("p", (1, 2))
    sample = drew(prompt, 0, ids=ids, logprobs=logprobs)
    with pytest.raises(UserError, match=message):
        as_groups([sample], [problem], [prompt])


def test_groups_without_a_difference_have_no_signal(guesser):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    signal = informative_groups(groups, RlStageConfig().algorithm.advantage, by="correct")
    assert signal == [False, False, True]
    metrics = describe(groups, informative=signal)
    assert metrics["yield"] == pytest.approx(1 / 3)
    assert metrics["all_solved"] == pytest.approx(1 / 3)
    assert metrics["none_solved"] == pytest.approx(1 / 3)
    assert metrics["reward"] == pytest.approx(0.5)
    assert metrics["length"] == pytest.approx(4.5)


def test_signal_is_what_the_solver_says_whatever_else_is_paid(guesser):
    """Solved by all, missed by all, both: rewards differ in each group, by brevity for one."""
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.7], [0.2, 0.0], [0.9, 0.1]])
    solved = [[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
    told = [
        [
            each._replace(components=(("correct", says), ("brief", each.reward - says)))
            for each, says in zip(group, given, strict=True)
        ]
        for group, given in zip(groups, solved, strict=True)
    ]
    advantage = RlStageConfig().algorithm.advantage
    assert informative_groups(told, advantage, by="correct") == [False, False, True]
    assert informative_groups(told, advantage, by="brief") == [True, True, True]


def test_an_engine_with_stale_weights_stops_the_run(guesser):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0]])
    learner = learner_of(policy)
    assert learner.gap(groups)["logprob_gap"] < 1e-6
    with torch.no_grad():
        policy.model.lm_head.weight.mul_(1.5)
    gap = learner.gap(groups)
    assert gap["logprob_gap_max"] > gap["logprob_gap"] > 0.05
    assert gap["logprob_gap_k3"] > 0
    with pytest.raises(UserError, match="engine's log-probabilities differ .* stale weights"):
        learner.check_gap(gap["logprob_gap"])


def test_the_gap_by_hand(guesser):
    """One log-probability is off by 0.3 and the rest are right: 0.3 / n, 0.3, (e^.3 - 1.3) / n."""
    policy = load_policy(guesser)
    ((first, second),) = groups_of(policy, rewards=[[1.0, 0.0]])
    changed = first._replace(logprobs=(first.logprobs[0] - 0.3, *first.logprobs[1:]))
    _, metrics = gradient(policy, [[changed, second]])
    num_tokens = first.num_drawn + second.num_drawn
    assert metrics["logprob_gap"] == pytest.approx(0.3 / num_tokens, abs=1e-5)
    assert metrics["logprob_gap_max"] == pytest.approx(0.3, abs=1e-5)
    expected = (math.exp(0.3) - 1.3) / num_tokens
    assert metrics["logprob_gap_k3"] == pytest.approx(expected, abs=1e-5)


def test_a_loss_that_is_not_finite_stops_the_run_before_the_update(guesser, tmp_path):
    """The batch that it names gives the same non-finite loss again."""
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0]])
    with torch.no_grad():
        policy.model.model.norm.weight[0] = float("nan")
    before = copy.deepcopy(policy.model.state_dict())
    optimizer = build_optimizer(policy.model)
    learner = learner_of(policy, optimizer, folder=tmp_path)
    samples = samples_of(learner, groups, step=4)[0]
    with pytest.raises(NotFiniteError, match="rl step 5: the loss is nan.* kept in ") as caught:
        learner.update(samples, step=4, index=0, seed=0)
    after = policy.model.state_dict()
    assert all(torch.equal(after[k].nan_to_num(), v.nan_to_num()) for k, v in before.items())
    kept = load_failed_batch(Path(str(caught.value).rsplit(" ", 1)[1]))
    assert kept.facts["step"] == 5
    assert kept.facts["weights"] == weights_digest(policy.model)
    parts = [TrainBatch(**part) for part in kept.parts]
    assert parts[0].sampled_logprobs_BT.ne(0).sum() == parts[0].num_tokens == 4 + 5
    with pytest.raises(NotFiniteError, match="the loss is nan"):
        learner.accumulate(parts, where="again")


def test_a_loss_that_is_not_finite_names_the_part_that_began_it(guesser, tmp_path, monkeypatch):
    policy = load_policy(guesser)
    learner = learner_of(policy, build_optimizer(policy.model), folder=tmp_path)
    (samples,) = samples_of(learner, groups_of(policy, rewards=[[1.0, 0.0]]))
    surrogate = type(learner.passes.config.algorithm.surrogate)
    honest = surrogate.token_loss

    def broken(*given):
        loss_BT, clipped_BT = honest(*given)
        return loss_BT / 0, clipped_BT

    monkeypatch.setattr(surrogate, "token_loss", broken)
    said = (
        "loss is nan, so training stopped; the first NaN or infinity is in surrogate.clip:"
        " `token_loss`, so look there first; .* kept in "
    )
    with pytest.raises(NotFiniteError, match=said):
        learner.update(samples, step=0, index=0, seed=0)


def test_a_gradient_that_is_not_finite_names_the_part_that_gave_nan_at_padding(
    guesser, tmp_path, monkeypatch
):
    policy = load_policy(guesser)
    learner = learner_of(policy, build_optimizer(policy.model), folder=tmp_path)
    (samples,) = samples_of(learner, groups_of(policy, rewards=[[1.0, 0.0]]))
    surrogate = type(learner.passes.config.algorithm.surrogate)
    honest = surrogate.token_loss

    def broken(part, logprobs_BT, log_ratio_BT, batch):
        loss_BT, clipped_BT = honest(part, logprobs_BT, log_ratio_BT, batch)
        # The sum takes part in the loss with factor 0 at drawn tokens, and 0 x NaN elsewhere.
        hidden_BT = torch.where(batch.mask_BT, 0.0, torch.nan)
        return loss_BT + hidden_BT * logprobs_BT.sum(), clipped_BT

    monkeypatch.setattr(surrogate, "token_loss", broken)
    said = "^the gradient is nan, .*; the first NaN or infinity is in surrogate.clip: `token_loss`"
    with pytest.raises(NotFiniteError, match=said):
        learner.update(samples, step=0, index=0, seed=0)


def test_what_a_part_gives_in_the_wrong_shape_is_said_of_rl(guesser, monkeypatch):
    policy = load_policy(guesser)
    learner = learner_of(policy)
    groups = groups_of(policy, rewards=[[1.0, 0.0]])
    (samples,) = samples_of(learner, groups)
    algorithm = learner.passes.config.algorithm
    monkeypatch.setattr(type(algorithm.surrogate), "token_loss", lambda *_: None)
    with pytest.raises(UserError, match=r"^rl: surrogate\.clip: `token_loss` gave a NoneType"):
        learner.update(samples, step=0, index=0, seed=0)
    monkeypatch.setattr(type(algorithm.advantage), "estimate", lambda *_, **__: None)
    with pytest.raises(UserError, match=r"^rl: advantage\.group: `estimate` gave a NoneType"):
        learner.training_samples(groups, step=0)
    with pytest.raises(UserError, match=r"^rl: advantage\.group: `estimate` gave a NoneType"):
        informative_groups(groups, algorithm.advantage, by="correct")


def test_a_gradient_that_is_not_finite_keeps_its_batch_too(guesser, tmp_path):
    """The loss is finite, but a hook makes one gradient infinite."""
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0]])
    policy.model.lm_head.weight.register_hook(lambda grad: grad * float("inf"))
    optimizer = build_optimizer(policy.model)
    learner = learner_of(policy, optimizer, folder=tmp_path)
    before = weights_digest(policy.model)
    with pytest.raises(NotFiniteError, match="the gradient is (nan|inf).* kept in ") as caught:
        learner.update(samples_of(learner, groups, step=0)[0], step=0, index=0, seed=0)
    assert weights_digest(policy.model) == before
    kept = load_failed_batch(Path(str(caught.value).rsplit(" ", 1)[1]))
    optimizer = build_optimizer(policy.model)
    learner.accumulate([TrainBatch(**part) for part in kept.parts], where="again")
    assert not all(p.grad.isfinite().all() for p in policy.model.parameters())


@pytest.mark.parametrize("broken", ["policy", "critic"])
def test_neither_policy_nor_critic_moves_where_one_gradient_is_not_finite(
    guesser, broken, tmp_path
):
    policy = load_policy(guesser)
    critic = Critic(policy.model, ValueModelConfig(learning_rate=1e-2))
    weight = {"policy": policy.model.lm_head.weight, "critic": critic.head.weight}[broken]
    weight.register_hook(lambda grad: grad * float("inf"))
    optimizer = build_optimizer(policy.model)
    learner = learner_of(policy, optimizer, folder=tmp_path, critic=critic, algorithm=PPO)
    (samples,) = samples_of(learner, groups_of(policy, rewards=[[1.0, 0.0]]))
    before = weights_digest(policy.model), copy.deepcopy(critic.state_dict())
    with pytest.raises(NotFiniteError, match="the gradient is (nan|inf)"):
        learner.update(samples, step=0, index=0, seed=0)
    assert weights_digest(policy.model) == before[0]
    assert torch.equal(critic.head.weight, before[1]["head"]["weight"])
    assert critic.state_dict()["optimizer"]["critic"]["state"] == {}


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
    (sample, _), *_ = bearing_loss(learner_of(policy).training_samples([group], step=0))
    old = tuple(value - shift for value in sample.logprobs)
    metrics = learner_of(policy).update([replace(sample, logprobs=old)], step=0, index=0, seed=0)
    assert metrics["clip_fraction"] == float(clipped)
    assert metrics["logprob_gap"] == pytest.approx(abs(shift), abs=1e-4)


def test_a_critic_starts_at_zero_so_advantages_are_discounted_rewards(guesser):
    """V = 0 everywhere: A_t = (0.9 x 0.8)^(n - 1 - t) for reward 1 at the last of n tokens."""
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0]])
    critic = Critic(policy.model, ValueModelConfig())
    ((good, bad),) = samples_of(learner_of(policy, critic=critic, algorithm=PPO), groups, step=0)
    assert good.advantages == pytest.approx([0.72**3, 0.72**2, 0.72, 1.0])
    assert good.returns == pytest.approx(good.advantages)
    assert bad.advantages == (0.0,) * 5
    assert good.values == (0.0,) * 4


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_a_critic_learns_what_to_expect(guesser, trunk):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 1.0]])
    critic = Critic(policy.model, ValueModelConfig(trunk=trunk, learning_rate=1e-2))
    optimizer = build_optimizer(policy.model)
    given = {"algorithm": PPO, "optimization": {"warmup_steps": 0, "lr_schedule": "constant"}}
    learner = learner_of(policy, optimizer, critic=critic, **given)
    errors = []
    for step in range(40):
        (samples,) = samples_of(learner, groups, step=step)
        errors.append(learner.update(samples, step=step, index=0, seed=0)["value_squared_error"])
    assert errors[-1] < 0.1 * errors[0]
    again = Critic(load_policy(guesser).model, ValueModelConfig(trunk=trunk))
    again.load_state_dict(critic.state_dict())
    assert torch.equal(again.head.weight, critic.head.weight)


def test_the_value_loss_moves_a_shared_trunk_and_no_other(guesser):
    for trunk, moves in (("own", False), ("shared", True)):
        policy = load_policy(guesser)
        groups = groups_of(policy, rewards=[[0.0, 0.0]])
        critic = Critic(policy.model, ValueModelConfig(trunk=trunk))
        with torch.no_grad():
            critic.head.weight.fill_(0.1)
        learner = learner_of(policy, critic=critic, algorithm=PPO)
        (samples,) = samples_of(learner, groups, step=0)
        # Without an advantage only the value loss is left.
        still = [replace(x, advantages=(0.0,)) for x in samples]
        learner.accumulate(learner._parts(still, step=0, index=0), where="test")
        gradients = [p.grad for p in policy.model.model.parameters()]
        assert any(g is not None and g.abs().max() > 0 for g in gradients) == moves


def test_a_moving_reference_follows_by_hand(guesser):
    policy, start = load_policy(guesser), load_policy(guesser)
    name = "model.norm.weight"

    def value(model):
        return model.state_dict()[name][0].item()

    first = value(policy.model)
    with torch.no_grad():
        policy.model.model.norm.weight += 1.0
    slow = ReferencePolicy(start.model, AveragedReference(decay=0.75))
    slow.follow(policy.model, num_updates=1)
    slow.follow(policy.model, num_updates=2)
    assert value(slow.model) == pytest.approx(first + 0.25 + 0.75 * 0.25)
    stepped = ReferencePolicy(load_policy(guesser).model, Periodic(every=2))
    stepped.follow(policy.model, num_updates=1)
    assert value(stepped.model) == first
    stepped.follow(policy.model, num_updates=2)
    assert value(stepped.model) == value(policy.model)
    frozen = ReferencePolicy(load_policy(guesser).model, FrozenReference())
    frozen.follow(policy.model, num_updates=1)
    assert value(frozen.model) == first
    assert frozen.state_dict() == {}


def test_stale_rollouts_are_weighed_by_the_policy_before_the_update_over_the_engine(guesser):
    """Every log-probability of the engine is 0.2 too low, and e^0.2 is cut at 1.1."""
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0]])
    low = [[r._replace(logprobs=tuple(x - 0.2 for x in r.logprobs)) for r in g] for g in groups]
    corrected = {
        "old_policy": "recomputed",
        "token_weights": {"importance": {"bound": "truncate", "high": 1.1}},
    }
    given = {"algorithm": corrected, "staleness": 1}
    learner = learner_of(policy, **given)
    buffer = Buffer(epochs=1, minibatches=1)
    buffer.open(Generation(1, low), bearing_loss(learner.training_samples(low, step=1)))
    metrics = next(buffer.updates(learner, seed=0))
    (samples,) = buffer.samples
    assert samples[0].old_logprobs == pytest.approx(groups[0][0].logprobs, abs=1e-5)
    assert metrics["weight_mean"] == pytest.approx(1.1)
    assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    _, plain = gradient(policy, groups)
    assert metrics["loss"] == pytest.approx(1.1 * plain["loss"], abs=1e-6)


def test_an_exact_entropy_bonus_is_the_entropy_of_the_whole_distribution(guesser):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0]])
    _, plain = gradient(policy, groups)
    bonus = {"regularizers": {"entropy": {"coefficient": 0.5, "place": "loss"}}}
    _, metrics = gradient(policy, groups, algorithm=bonus)
    total, count = 0.0, 0
    for rollout in groups[0]:
        logits = policy.model(torch.tensor([rollout.token_ids])).logits[0, 2:-1]
        total -= (logits.softmax(-1) * logits.log_softmax(-1)).sum().item()
        count += rollout.num_drawn
    assert metrics["loss"] == pytest.approx(plain["loss"] - 0.5 * total / count, abs=1e-5)
    assert metrics["entropy_exact"] == pytest.approx(total / count, abs=1e-5)


def test_the_exact_entropy_of_a_head_with_a_bias_is_the_same_in_chunks(guesser, monkeypatch):
    policy = load_policy(guesser)
    head = policy.model.get_output_embeddings()
    head.bias = torch.nn.Parameter(torch.linspace(-1.0, 1.0, len(head.weight)))
    groups = groups_of(policy, rewards=[[1.0, 0.0]])
    bonus = {"regularizers": {"entropy": {"coefficient": 0.5, "place": "loss"}}}
    whole, metrics = gradient(policy, groups, algorithm=bonus)
    logits = [policy.model(torch.tensor([row.token_ids])).logits[0, 2:-1] for row in groups[0]]
    logprobs = torch.cat(logits).log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1).mean().item()
    assert metrics["entropy_exact"] == pytest.approx(entropy, abs=1e-5)
    # Two of the drawn tokens at a time.
    slices = "posttrain.learning.models.token_slices"
    monkeypatch.setattr(f"{slices}.CHUNK_ELEMENTS", 2 * len(head.weight))
    parts, metrics = gradient(policy, groups, algorithm=bonus)
    assert metrics["entropy_exact"] == pytest.approx(entropy, abs=1e-5)
    for found, expected in zip(parts[0], whole[0], strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


class Undecided(TokenWeight):
    """The tokens of a generation whose entropy is above its median, as in arXiv 2506.01939."""

    NEEDS = frozenset({"generation_entropy"})
    kind: Literal["undecided"] = "undecided"

    def of_generation(self, rollouts, advantages_BT):
        return rollouts.entropy_BT > rollouts.entropy_BT[rollouts.mask_BT].median()


def test_a_weight_by_entropy_is_fixed_before_the_first_update(guesser):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0, 0.0]])
    learner = learner_of(policy, algorithm={"token_weights": {"undecided": Undecided()}})
    (samples,) = samples_of(learner, groups)
    entropies = []
    for rollout in groups[0]:
        with torch.no_grad():
            logits = policy.model(torch.tensor([rollout.token_ids])).logits[0, 2:-1]
        logprobs = logits.log_softmax(-1)
        entropies.append(-(logprobs.exp() * logprobs).sum(-1))
    # Of 4 + 5 + 6 tokens the eighth is the median, and seven are above it.
    bound = torch.cat(entropies).sort().values[7]
    expected = [tuple((each > bound).float().tolist()) for each in entropies]
    assert [sample.weights for sample in samples] == expected
    metrics = learner.update(samples, step=0, index=0, seed=0)
    assert metrics["weight_zero_fraction"] == pytest.approx(8 / 15)


class Seen(TokenWeight):
    """Keeps what it is given in an update."""

    NEEDS = frozenset({"entropy", "group_statistics", "whole_groups"})
    kind: Literal["seen"] = "seen"

    def of_update(self, logprobs_BT, *, old_logprobs_BT, batch):
        SEEN.append(batch)


SEEN = []


class SeenRatio(Seen):
    """The same of the whole vocabulary."""

    NEEDS = frozenset({"vocabulary_ratio"})
    kind: Literal["seen_ratio"] = "seen_ratio"


def test_the_mean_over_the_vocabulary_is_measured_from_before_the_step(guesser):
    """At temperature 2: mean log-softmax of the policy now, less that of before the step."""
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0]])
    config = {"updates": {"epochs": 2}, "temperature": 2.0}
    learner = learner_of(policy, algorithm={"token_weights": {"seen_ratio": SeenRatio()}}, **config)
    ((sample, _),) = samples_of(learner, groups)

    def mean():
        with torch.no_grad():
            logits = policy.model(torch.tensor([sample.token_ids])).logits[0, 2:-1] / 2.0
        return logits.log_softmax(-1).mean(-1)

    before = mean()
    assert list(sample.vocabulary_logprobs) == pytest.approx(before.tolist(), abs=1e-6)
    with torch.no_grad():
        policy.model.get_output_embeddings().weight[5:9] += 0.3
    SEEN.clear()
    learner.update([sample], step=0, index=1, seed=0)
    found = SEEN[0].vocabulary_ratio_BT[SEEN[0].mask_BT]
    torch.testing.assert_close(found, mean() - before, atol=1e-6, rtol=0)
    assert found.abs().min() > 1e-4


@pytest.mark.parametrize("kind", ["outcome_label", "discriminative"])
def test_a_loss_of_whole_groups_does_not_depend_on_micro_batches(guesser, kind):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    algorithm = {
        "advantage": {"kind": "group", "baseline": "none"},
        "surrogate": {"kind": kind},
        "aggregation": {"kind": "sequence_mean_token_mean"},
        "regularizers": {"kl_limit": {"coefficient": 10.0, "limit": 0.0}},
    }
    (whole, one), (parts, other) = (
        gradient(policy, groups, algorithm=algorithm, updates={"micro_batch_tokens": budget})
        for budget in (10_000, 1)
    )
    assert other["loss"] == pytest.approx(one["loss"], abs=1e-6)
    for each, same in zip(whole[0], parts[0], strict=True):
        torch.testing.assert_close(each, same, atol=1e-6, rtol=0)
    assert max(each.abs().max() for each in whole[0]) > 1e-3


def test_an_update_gives_what_is_needed_by_whole_groups(guesser):
    policy = load_policy(guesser)
    groups = groups_of(policy, rewards=[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    config = {"updates": {"micro_batch_tokens": 1}}
    learner = learner_of(policy, algorithm={"token_weights": {"seen": Seen()}}, **config)
    samples = [sample for group in samples_of(learner, groups) for sample in group]
    SEEN.clear()
    learner.update([*samples[::2], *samples[1::2]], step=0, index=0, seed=0)
    # A micro-batch would hold one rollout each; groups stay together all the same.
    assert [batch.group_B.tolist() for batch in SEEN] == [[0, 0, 0], [1, 1, 1]]
    assert SEEN[0].group_mean_B.tolist() == pytest.approx([1 / 3] * 3)
    assert SEEN[0].group_deviation_B.tolist() == pytest.approx([(2 / 9) ** 0.5] * 3)
    assert not SEEN[0].entropy_BT.requires_grad
    assert (SEEN[0].entropy_BT > 0).equal(SEEN[0].mask_BT)
    SEEN.clear()
    learner_of(policy, **config).update(samples, step=0, index=0, seed=0)
    assert SEEN == []


def test_turns_are_those_of_the_drawn_spans(guesser):
    """Two turns of two tokens and of one, with an answer of a tool in between, paid at the end."""
    ((first, second),) = groups_of(load_policy(guesser), rewards=[[1.0, 0.0]])
    spans = (
        Span(0, 3, 0, drawn=False),
        Span(3, 5, 0, drawn=True),
        Span(5, 6, 1, drawn=False),
        Span(6, 7, 1, drawn=True),
    )
    first = first._replace(spans=spans, logprobs=first.logprobs[:3])
    batch = rollout_batch([first, second], needs={"turns"})
    assert batch.turn_BT.tolist() == [[0, 0, 1, -1, -1], [0, 0, 0, 0, 0]]
    assert batch.turn_rewards_BK.tolist() == [[0.0, 1.0], [0.0, 0.0]]
