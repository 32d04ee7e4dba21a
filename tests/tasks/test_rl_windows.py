"""Answers that are learned from window by window: whose loss, to which bits, after which kill."""

import copy

import pytest
import torch

from posttrain.backends.cluster import local_pool
from posttrain.data.schemas import CURVE, ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.learning.rl.batch import bearing_loss
from posttrain.learning.rl.critic import Critic
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.model_config import ValueModelConfig
from posttrain.learning.rl.passes import ModelPasses
from posttrain.learning.rl.producers.base import SamplingRound, Workbench
from posttrain.learning.rl.producers.windows import Windows
from posttrain.learning.rl.replay import replay
from posttrain.learning.rl.store import stored_groups
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.learning.rollouts.scoring import make_prompts
from posttrain.learning.training.config import LearnerConfig
from posttrain.learning.training.prepare import Trainable
from posttrain.stage.context import StageContext
from tasks.rl.config import RlStageConfig
from tests.tasks.exact import run_with_ends
from tests.tasks.test_rl_ahead import SMALL, InTurn, same, trained

# Answers of up to six tokens in windows of two; most have three.
ALGORITHM = {
    "advantage": {"kind": "egae", "lam": 0.9, "whiten": "sample"},
    "critic": {"coefficient": 1.0, "clip": None},
}
SETTINGS = {
    "staleness": 0,
    "producer": {"kind": "windows", "most": 3},
    "algorithm": ALGORITHM,
    "checkpoint_every": 1,
}


@pytest.fixture(scope="module")
def inputs(guesser, coins_path):
    return {"policy": guesser, "problems": coins_path}


@pytest.fixture(scope="module")
def ran(inputs, tmp_path_factory):
    return trained(inputs, tmp_path_factory.mktemp("windows"), **SETTINGS)[0]


@pytest.fixture(scope="module")
def rows(ran):
    """Of each step, from 1."""
    return [
        (step, row)
        for step, groups in stored_groups(read_table(ran["rollouts"], ROLLOUTS))
        for group in groups
        for row in group
    ]


@pytest.mark.slow
def test_each_step_has_a_window_of_every_answer_that_is_at_work(rows):
    """A window is of the step's own policy; an answer's rows are each a window longer."""
    goes_on = {}
    for step, row in rows:
        last = row.spans[-1]
        assert last.end - last.begin == row.num_drawn - row.earlier <= 2
        assert row.versions[-1] == step - 1
        assert (
            goes_on.pop((step, row.episode, row.earlier), row.token_ids[: last.begin])
            == (row.token_ids[: last.begin])
        )
        if row.unfinished:
            assert (row.reward, row.solved, row.components) == (None, None, ())
            goes_on[step + 1, row.episode, row.num_drawn] = row.token_ids
        else:
            assert row.reward is not None
    # Nothing was lost but what the run's end left.
    assert {step for step, *_ in goes_on} <= {6}
    assert {row.earlier for _, row in rows} == {0, 2}


def test_the_policy_learns_from_the_window_alone(rows):
    """Every token of earlier steps has advantage 0, and tokens of what goes on have others."""
    for _, row in rows:
        assert not any(row.advantages[: row.earlier])
    assert any(any(row.advantages) for _, row in rows if row.unfinished)
    assert any(any(row.advantages) for _, row in rows if row.earlier and not row.unfinished)


def test_equal_calls_and_the_rows_alone_give_equal_bits(ran, inputs, tmp_path):
    again, _ = trained(inputs, tmp_path / "again", **SETTINGS)
    same(ran, again)
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    config = RlStageConfig(**SMALL | SETTINGS)
    found = replay(config, {"policy": inputs["policy"]}, ran["rollouts"], context)
    assert found == weights_digest(load_policy(ran["policy"]).model)


@pytest.mark.slow
def test_a_run_that_is_killed_within_an_answer_goes_on_to_the_same_bits(ran, inputs, tmp_path):
    config = RlStageConfig(**SMALL | SETTINGS)

    outputs = run_with_ends(config, inputs, ran, tmp_path / "killed", (1, 2, 4))
    same(ran, outputs)


@pytest.mark.slow
def test_windows_are_drawn_ahead_to_the_bits_of_one_process(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(local_pool, "LocalPool", InTurn)
    settings = SETTINGS | {"staleness": 1}
    alone, _ = trained(inputs, tmp_path / "alone", **settings)
    other, _ = trained(inputs, tmp_path / "ahead", ahead=1, **settings)
    same(alone, other)


def test_the_curve_tells_what_goes_on_and_holds_the_engine_against_the_windows(ran):
    curve = read_table(ran["curve"], CURVE)
    assert curve.filter(metric="rl/unfinished")["value"].max() > 0
    assert curve.filter(metric="rl/logprob_gap")["value"].max() < 1e-5
    assert curve.filter(metric="rl/policies")["value"].max() > 1


def greedy(policy, coins, most, steps):
    """Rows of some problems at temperature 0, in so many windows of one policy."""
    engine = TorchRolloutEngine(policy.model, policy.tokenizer, batch_size=64)
    made = Windows(most=most).start(Workbench(engine, None, policy.tokenizer, policy))
    prompts = make_prompts(policy.tokenizer, coins)
    params = SamplingParams(max_tokens=6, num_samples=1, temperature=0.0, seed=3)
    found = {}
    for step in range(steps):
        asked = (coins, prompts) if not step else ((), ())
        for (row,) in made.produce(*asked, SamplingRound(step, params, 0, 0)):
            found[row.problem_id] = row
    return found


def test_in_three_windows_of_one_policy_an_answer_is_the_one_that_is_drawn_whole(guesser, coins):
    policy, some = load_policy(guesser), coins[:6]
    whole, parts = greedy(policy, some, 1, 1), greedy(policy, some, 6, 6)
    assert max(len(row.versions) for row in parts.values()) == 3
    for name, row in parts.items():
        assert (row.token_ids, row.text, row.end) == (
            whole[name].token_ids, whole[name].text, whole[name].end
        )  # fmt: skip
        assert row.logprobs == pytest.approx(whole[name].logprobs, abs=1e-4)


class Collecting:
    """Stands in for the optimizer of the policy, and steps nothing."""

    def __init__(self, model):
        self.model = model

    def backward(self, loss, *, last):
        loss.backward()


def as_drawn_by(policy, row):
    """A row with the log-probabilities of this policy, to which its ratio is 1."""
    ids = torch.tensor([row.token_ids])
    with torch.no_grad():
        found, _ = wanted_logprobs(policy.model, ids, wanted_BT=torch.tensor([row.drawn]))
    return row._replace(logprobs=tuple(found.tolist()))


def test_policy_and_critic_have_the_gradients_of_their_own_tokens(guesser, tmp_path, rows):
    """Of an answer that is over in its second window, and one that goes on: the policy's loss is
    over the two windows' tokens, the critic's over all tokens of the first alone."""
    policy = load_policy(guesser, dtype=torch.float64)
    over = next(r for _, r in rows if r.earlier and not r.unfinished)
    over = as_drawn_by(policy, over)._replace(reward=1.0, group=0)
    goes_on = next(r for _, r in rows if r.unfinished and not r.earlier)
    goes_on = as_drawn_by(policy, goes_on)._replace(group=1)
    config = RlStageConfig(
        max_tokens=6,
        producer={"kind": "windows", "most": 3},
        algorithm={
            "advantage": {"kind": "egae", "lam": 1.0},
            "critic": {"clip": None},
        },
    )
    critic = Critic(copy.deepcopy(policy.model), ValueModelConfig())
    torch.manual_seed(1)
    torch.nn.init.normal_(critic.head.weight)
    passes = ModelPasses(
        trainable=Trainable(policy.model, LearnerConfig(), None, None),
        reference=None,
        critic=critic,
        config=config,
        pad=0,
        device="cpu",
    )
    learner = PolicyLearner(passes=passes, optimizer=Collecting(policy.model), scratch=tmp_path)
    groups = learner.training_samples([[over], [goes_on]], step=over.versions[-1])
    samples = [each for group in bearing_loss(groups) for each in group]
    parts = learner._parts(samples, step=over.versions[-1], index=0)
    metrics = learner.accumulate(parts, where="here")
    found = [p.grad.clone() for p in policy.model.parameters()]
    found_head = critic.head.weight.grad.clone()

    # By hand, row by row: V before each drawn token, and with lambda 1 what is left of the return.
    policy.model.zero_grad()
    critic.head.zero_grad()
    counts = [row.num_drawn - row.earlier for row in (over, goes_on)]
    for row, count in zip((over, goes_on), counts, strict=True):
        ids = torch.tensor([row.token_ids])
        first = row.spans[0].end - 1
        hidden = critic.trunk.base_model(input_ids=ids).last_hidden_state[0, first:-1]
        values = critic.head(hidden)[:, 0]
        # Behind what goes on the last value stands for the next.
        end = values[-1].detach() if row.unfinished else 1.0
        a = (end - values.detach())[-count:]
        logits = policy.model(ids).logits[0, first:-1].log_softmax(-1)
        logp = logits[torch.arange(len(values)), ids[0, first + 1 :]][-count:]
        (-(a * logp).sum() / sum(counts)).backward()
        if not row.unfinished:
            loss = ((values - 1.0) ** 2 / 2).mean()
            loss.backward()
            assert metrics["value_loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    torch.testing.assert_close(found_head, critic.head.weight.grad, rtol=1e-5, atol=1e-7)
    for one, parameter in zip(found, policy.model.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, rtol=1e-4, atol=1e-6)
