"""Rewards for every token: the stage's gradient is the formula's, and rollouts replay exactly."""

import pytest
import torch

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.rl.replay import replay
from posttrain.methods.formula import clipped_gain, whitened
from posttrain.operations.gradients.rollouts import drive_rl
from posttrain.stage.context import StageContext
from tasks.rl import TASK
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

BETA, CLIP, LAM, KL = 0.5, 0.05, 0.9, 0.05
REWARD = {
    "components": {
        "correct": "verifier",
        "dense": {
            "kind": "token_log_ratio",
            "of": "tuned",
            "against": "start",
            "beta": BETA,
            "clip": CLIP,
        },
    },
    "bonus_may_outweigh": True,
}
RTO = {
    "reward": REWARD,
    "draw": {"train_on": "all"},
    "algorithm": {
        "advantage": {"kind": "gae", "gamma": 1.0, "lam": LAM, "whiten": "sample"},
        "surrogate": {"low": 0.2, "high": 0.2},
        "aggregation": {"kind": "token_mean"},
        "regularizers": {"kl": {"coefficient": KL, "place": "reward", "estimator": "k1"}},
        "critic": {"coefficient": 0.1, "clip": 0.2},
    },
}


@pytest.fixture(scope="module")
def ports(guesser, coins_path, tmp_path_factory):
    """With a policy that is tuned away from the start, whose ratio is beyond the clip at times."""
    tuned = load_policy(guesser)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in tuned.model.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=generator)
    path = tmp_path_factory.mktemp("tuned") / "policy"
    save_policy(tuned.model, tuned.tokenizer, path)
    given = {"policy": guesser, "problems": coins_path}
    return given | {"references.tuned": path, "references.start": guesser}


def log_p(path, row):
    """Of the drawn tokens at temperature 1, by a plain pass."""
    model = load_policy(path, dtype=torch.float64).model.eval()
    ids, count = torch.tensor(row["token_ids"]), len(row["logprobs"])
    with torch.no_grad():
        whole = model(input_ids=ids[None]).logits[0].log_softmax(-1)
    return whole[:-1].gather(-1, ids[1:, None])[-count:, 0]


def rto(ports, beyond):
    """The loss of RTO's PPO: a token earns its clipped ratio less the divergence, the last one the
    outcome too; then PPO with generalized advantages."""

    def formula(rows):
        per_token = []
        for i, row in enumerate(rows.stored):
            scaled = BETA * (log_p(ports["references.tuned"], row) - log_p(ports["policy"], row))
            beyond.append(float((scaled.abs() > CLIP).double().mean()))
            paid = scaled.clamp(-CLIP, CLIP) - KL * (rows.log_engine[i] - rows.log_ref[i])
            paid[-1] += next(e["value"] for e in row["components"] if e["name"] == "correct")
            found, ahead, following = [], 0.0, 0.0
            for value, pay in zip(rows.values[i].tolist()[::-1], paid.tolist()[::-1], strict=True):
                ahead = pay + following - value + LAM * ahead
                following = value
                found.append(ahead)
            per_token.append(torch.tensor(found[::-1], dtype=torch.float64))
        a = whitened(per_token, less=1)
        return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))

    return formula


@pytest.mark.slow  # three comparisons by hand, token by token
def test_the_gradient_of_reinforced_token_optimization(ports, tmp_path):
    beyond = []
    run = drive_rl(RTO, TASK, ports, tmp_path, dtype=torch.float64)
    errors = run.errors(rto(ports, beyond))
    assert errors.complaint == ""
    assert errors.tokens <= 1e-5
    assert errors.weights <= 1e-5
    # Some tokens are clipped and others are not: each of the two matters.
    assert 0.05 < sum(beyond) / len(beyond) < 0.95
    # The same reward paid at the end is another gradient.
    blind = [
        each | {"components": [{"name": "correct", "value": each["reward"]}]}
        for each in run.rollouts
    ]
    run.rollouts = blind
    zero = ports | {"references.tuned": ports["policy"]}
    assert run.errors(rto(zero, [])).tokens > 0.01


def test_each_token_is_paid_at_its_place_and_a_replay_ends_at_the_same_weights(ports, tmp_path):
    settings = {
        "steps": 2,
        "problems_per_step": 4,
        "group_size": 4,
        "max_tokens": 8,
        "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
        "checkpoint_every": 0,
    }
    by_token = RTO | {"algorithm": {"advantage": {"kind": "returns", "gamma": 0.5}}}
    outputs = {name: tmp_path / name for name in ("policy", "rollouts", "curve", "report")}
    config = RlStageConfig.parse(settings | by_token, where="rl")
    run(config, ports, outputs, StageContext.quiet(tmp_path / "scratch"))
    rows = read_table(outputs["rollouts"], ROLLOUTS).to_dicts()
    for row in rows[:6]:
        scaled = BETA * (log_p(ports["references.tuned"], row) - log_p(ports["policy"], row))
        wanted = scaled.clamp(-CLIP, CLIP).tolist()
        assert row["token_rewards"] == pytest.approx(wanted, abs=1e-5)
        right = row["components"][0]["value"]
        assert row["reward"] == pytest.approx(right + sum(wanted), abs=1e-4)
        # G_t = r_t + 0.5 G_t+1, from the end, where the outcome is paid too.
        ahead, returns = 0.0, []
        for place, pay in reversed(list(enumerate(wanted))):
            ahead = pay + (right if place == len(wanted) - 1 else 0.0) + 0.5 * ahead
            returns.append(ahead)
        assert row["advantages"] == pytest.approx(returns[::-1], abs=1e-4)
    only = {name: ports[name] for name in ("policy",)}
    digest = replay(config, only, outputs["rollouts"], StageContext.quiet(tmp_path / "again"))
    assert digest == weights_digest(load_policy(outputs["policy"]).model)
