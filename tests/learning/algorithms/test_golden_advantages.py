"""Golden values of the advantages, preset by preset, and the order of the steps that make them."""

import math

import pytest
import torch

from posttrain.learning.algorithms.batches import RolloutBatch
from posttrain.learning.algorithms.credit_assignment import advantages

HALF = [0.5, -0.5, -0.5, 0.5]
GRADED = [-0.2, 0.5, 0.0, -0.3]
WHITEN_N1 = [1.178511, -1.178511, -1.178511, 1.178511, -0.471405, 1.178511, 0.0, -0.707107]

PRESETS_ON_G = {
    "verl": ("grpo_verl", {}, [0.866024], [-0.561950, 1.404875, 0.0, -0.842925]),
    "TRL": ("grpo_trl", {}, [0.865875], [-0.561794, 1.404484, 0.0, -0.842691]),
    "the paper": ("grpo", {}, [0.866025], [-0.561951, 1.404879, 0.0, -0.842927]),
    "open-instruct": ("grpo_open_instruct", {}, [0.5], GRADED),
    "open-instruct, standard": (
        "grpo_open_instruct",
        {"scale": "population", "epsilon": 1e-8},
        [1.0],
        [-0.648886, 1.622214, 0.0, -0.973329],
    ),
    "NeMo-RL": (
        "grpo",
        {"baseline": "leave_one_out", "scale": "leave_one_out", "epsilon": 1e-6},
        [1.1547],
        [-0.659827, 4.364329, 0.0, -1.109397],
    ),
    "Dr.GRPO": ("dr_grpo", {}, [0.5], GRADED),
    "RLOO": ("rloo", {}, [2 / 3], [-0.266667, 0.666667, 0.0, -0.4]),
    "MaxRL": ("maxrl", {}, [0.999998], [-0.499999, 1.249997, 0.0, -0.749998]),
    # The eight rewards have mean .45 and squares about it of 1.4 in all: sqrt(1.4 / 7) = .447214.
    "Lite PPO": ("lite_ppo", {}, [1.118031], [-0.447213, 1.118031, 0.0, -0.670819]),
    "REINFORCE++ baseline, verl": (
        "reinforce_plus_plus_baseline",
        {"whiten": "sample"},
        [1.178511],
        WHITEN_N1[4:],
    ),
    # Over n = 24 tokens in place of n - 1: larger by sqrt(24 / 23).
    "REINFORCE++ baseline": (
        "reinforce_plus_plus_baseline",
        {},
        [1.178511 * math.sqrt(24 / 23)],
        [value * math.sqrt(24 / 23) for value in WHITEN_N1[4:]],
    ),
}


@pytest.mark.parametrize(
    ("name", "changes", "half", "graded"), PRESETS_ON_G.values(), ids=PRESETS_ON_G
)
def test_group_advantages(choose, fixture_g, name, changes, half, graded):
    algorithm = choose(name, advantage=changes, regularizers={"kl": None})
    found = advantages(algorithm, fixture_g).advantages_BT
    (a,) = half
    assert found[:, 0].tolist() == pytest.approx([a, -a, -a, a, *graded], abs=1e-5)
    assert torch.equal(found, found[:, :1].expand_as(found))


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [("reinforce", 1.0, 0.0), ("nsr", 0.0, -1.0), ("w_reinforce", 0.1, -1.0)],
)
def test_advantages_without_a_baseline(choose, name, right, wrong):
    outcomes = RolloutBatch(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]))
    found = advantages(choose(name), outcomes).advantages_BT
    assert found[:, 0].tolist() == pytest.approx([right, wrong])


GROUPED = ["default", "grpo", "dr_grpo", "lite_ppo", "maxrl", "grpo_verl", "rloo"]


@pytest.mark.parametrize("name", GROUPED)
def test_a_lone_rollout_and_equal_rewards_give_exactly_nothing(choose, name):
    outcomes = RolloutBatch(
        torch.tensor([0.7, 0.1, 0.1, 0.1, 0.3, 0.9]), torch.tensor([0, 1, 1, 1, 2, 2])
    )
    found = advantages(choose(name, regularizers={"kl": None}), outcomes).advantages_BT[:, 0]
    assert found[:4].tolist() == [0.0] * 4
    assert (found[4:] != 0).all()


CRITIC = {"gamma": 0.99, "lam": 0.95, "whiten": "none"}
F_OUTCOMES = RolloutBatch(
    rewards_B=torch.tensor([1.0, -0.5]),
    group_B=torch.tensor([0, 1]),
    mask_BT=torch.tensor([[True, True, True], [True, True, False]]),
    values_BT=torch.tensor([[0.5, 0.4, 0.3], [0.2, 0.1, 0.0]]),
)


@pytest.mark.parametrize(
    ("whiten", "expected"),
    [
        ("none", [0.418307, 0.555350, 0.700000, -0.665300, -0.600000]),
        ("sample", [0.510014, 0.717640, 0.936790, -1.131688, -1.032756]),
        ("population", [0.570213, 0.802346, 1.047363, -1.265266, -1.154657]),
    ],
)
def test_advantages_from_a_critic_and_its_loss(choose, whiten, expected):
    algorithm = choose(
        "ppo",
        advantage=CRITIC | {"whiten": whiten},
        regularizers={"kl": None},
        critic={"coefficient": 1.0},
    )
    credit = advantages(algorithm, F_OUTCOMES)
    mask = F_OUTCOMES.mask_BT
    assert credit.advantages_BT[mask].tolist() == pytest.approx(expected, abs=1e-5)
    assert credit.returns_BT[mask].tolist() == pytest.approx(
        [0.918307, 0.955350, 1.0, -0.4653, -0.5], abs=1e-5
    )
    predicted = torch.tensor([[0.9, 0.4, 0.2], [0.2, 0.3, 0.0]])
    loss, _ = algorithm.critic.loss(
        predicted,
        returns_BT=credit.returns_BT,
        old_values_BT=F_OUTCOMES.values_BT,
        mask_BT=mask,
        aggregation=algorithm.aggregation,
        denominator=5,
    )
    assert loss.item() == pytest.approx(0.207870, abs=1e-5)


def test_a_critic_never_reads_values_at_observations(choose):
    outcomes = RolloutBatch(
        rewards_B=torch.tensor([1.0]),
        group_B=torch.tensor([0]),
        mask_BT=torch.tensor([[True, True, False, False, True, True]]),
        values_BT=torch.tensor([[0.5, 0.4, 9.0, 9.0, 0.3, 0.2]]),
    )
    found = advantages(
        choose("ppo", advantage=CRITIC, regularizers={"kl": None}), outcomes
    ).advantages_BT
    assert found[outcomes.mask_BT].tolist() == pytest.approx(
        [0.374434, 0.508701, 0.650400, 0.800000], abs=1e-5
    )
    assert found[0, 2:4].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("bounded", "beyond"), [(True, -1.0), (False, -2.0)])
def test_the_penalty_for_length(choose, bounded, beyond):
    lengths = torch.tensor([80, 81, 90, 100, 120])
    outcomes = RolloutBatch(
        rewards_B=torch.zeros(5),
        group_B=torch.zeros(5),
        mask_BT=torch.arange(120) < lengths[:, None],
        truncated_B=torch.zeros(5, dtype=torch.bool),
    )
    algorithm = choose("reinforce", overlong={"share": 0.2, "limit": 100, "bounded": bounded})
    found = advantages(algorithm, outcomes).advantages_BT[:, 0]
    assert found.tolist() == pytest.approx([0.0, -0.05, -0.5, -1.0, beyond])
    halved = choose("reinforce", overlong={"share": 0.2, "factor": 0.5})
    assert advantages(halved, outcomes, max_tokens=100).advantages_BT[2, 0] == pytest.approx(-0.25)
