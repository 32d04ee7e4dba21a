"""The parts of algorithms: what each says of itself, and who is informative by rewards alone."""

import math
from typing import Literal

import pytest
import torch

from posttrain.learning.algorithms.advantages.registry import ADVANTAGES
from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.check import check
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.credit_assignment import advantages, informative
from posttrain.learning.algorithms.identity import digest
from posttrain.learning.algorithms.objective import policy_objective
from posttrain.learning.algorithms.part import NEEDS
from posttrain.learning.algorithms.presets import PRESETS
from posttrain.learning.algorithms.regularizers.registry import REGULARIZERS
from posttrain.learning.algorithms.surrogates.registry import SURROGATES
from posttrain.learning.algorithms.token_weights.base import TokenWeight
from posttrain.learning.algorithms.token_weights.registry import TOKEN_WEIGHTS
from posttrain.stage.errors import UserError
from posttrain.stage.schedule import at

SLOTS = [ADVANTAGES, SURROGATES, TOKEN_WEIGHTS, REGULARIZERS]


@pytest.mark.parametrize(
    ("kind", "part"), [pair for slot in SLOTS for pair in slot.parts.items()], ids=str
)
def test_a_part_names_its_kind_its_source_and_needs_that_there_are(kind, part):
    assert part.model_fields["kind"].default == kind
    assert part.SOURCE
    assert set(NEEDS) >= part.NEEDS


def test_what_an_algorithm_needs_is_what_its_parts_need(choose):
    assert choose("default").needs == set()
    assert choose("ppo").needs == {"values", "rewards_reference"}
    assert choose("grpo_verl").needs == {"old_logprobs", "reference"}
    bonus = {"entropy": {"coefficient": 0.1, "place": "loss"}}
    assert choose("default", regularizers=bonus).needs == {"entropy_gradient"}
    assert not choose("default").uses_reference
    assert choose("grpo").uses_reference


def test_parts_that_take_their_turns_are_in_one_order_however_they_are_written():
    kl, entropy = {"coefficient": 0.1}, {"coefficient": 0.2}
    one, other = (
        Algorithm.model_validate({"regularizers": sections})
        for sections in ({"kl": kl, "entropy": entropy}, {"entropy": entropy, "kl": kl})
    )
    assert list(one.regularizers) == list(other.regularizers) == ["kl", "entropy"]
    twice = {"far": {"kind": "kl", "coefficient": 0.1}, "near": {"kind": "kl", "coefficient": 0.3}}
    algorithm = Algorithm.model_validate({"regularizers": twice})
    assert algorithm.describe().endswith("k3 0.1 in loss · k3 0.3 in loss")


class Ranked(TokenWeight):
    """Weighs by something that no learner computes."""

    NEEDS = frozenset({"entropi"})
    kind: Literal["ranked"] = "ranked"


def test_a_need_that_no_learner_knows_is_refused_with_the_nearest():
    algorithm = Algorithm(token_weights={"ranked": Ranked()})
    sentence = r"rl.token_weights.ranked: ranked needs entropi; did you mean 'entropy'\?"
    with pytest.raises(UserError, match=sentence):
        check(algorithm, where="rl")


def groups(*rewards, **more):
    """One group a list, of rollouts of three tokens."""
    flat = [reward for group in rewards for reward in group]
    return RolloutBatch(
        rewards_B=torch.tensor(flat, dtype=torch.float64),
        group_B=torch.tensor([i for i, group in enumerate(rewards) for _ in group]),
        mask_BT=torch.ones(len(flat), 3, dtype=torch.bool),
        truncated_B=torch.zeros(len(flat), dtype=torch.bool),
        **more,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Equal rewards teach nothing against a mean; a mixed group does.
        ("grpo", [False, False, False, False, True, True]),
        ("lite_ppo", [False, False, False, False, True, True]),
        # Right is 1, wrong is 0: without a baseline only rights count, or only wrongs.
        ("reinforce", [True, True, False, False, True, False]),
        ("nsr", [False, False, True, True, False, True]),
        # A critic, or the spread over the batch, may tell what the rewards of a group do not.
        ("ppo", [True] * 6),
        ("reinforce_plus_plus", [True] * 6),
    ],
)
def test_who_is_informative_by_rewards_alone(name, expected):
    batch = groups([1.0, 1.0], [0.0, 0.0], [1.0, 0.0])
    assert informative(PRESETS[name].algorithm.advantage, batch).tolist() == expected


def test_an_advantage_that_needs_what_is_computed_later_says_so():
    class ByValues(PRESETS["grpo"].algorithm.advantage.__class__):
        NEEDS = frozenset({"values", "turns"})

        def estimate(self, rollouts, *, rewards_B, costs, include_B):
            return rewards_B[:, None] - rollouts.values_BT, None

    with pytest.raises(UserError, match=r"by rewards alone .* what it needs \(values\)"):
        informative(ByValues(), groups([1.0, 0.0]))


def test_a_solved_group_of_unequal_lengths_is_not_informative():
    """DAPO keeps groups of which some are right and some are wrong, whatever they cost."""
    lengths = torch.tensor([10, 95, 20, 30])
    batch = RolloutBatch(
        rewards_B=torch.ones(4, dtype=torch.float64),
        group_B=torch.zeros(4, dtype=torch.long),
        mask_BT=torch.arange(100) < lengths[:, None],
        truncated_B=torch.zeros(4, dtype=torch.bool),
    )
    assert not informative(PRESETS["dapo"].algorithm.advantage, batch).any()


def test_a_loss_over_wrong_answers_alone_counts_no_right_one(choose):
    """Of tokens 1, 1 and 2, 2 in two groups, right and wrong: -A log p over the wrong ones' 3."""
    batch = RolloutBatch(
        rewards_B=torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64),
        group_B=torch.tensor([0, 0, 1, 1]),
        mask_BT=torch.tensor([[True, False], [True, False], [True, True], [True, True]]),
    )
    wrong_alone = {"baseline": "none", "offset": 0.5, "negative_weight": 2.0}
    advantage = choose("default", advantage=wrong_alone | {"learn_from": "negative"})
    found = advantages(advantage, batch)
    assert found.bears_loss_B.tolist() == [False, True, False, True]
    assert found.advantages_BT.squeeze().tolist() == [0.0, -1.0, 0.0, -1.0]
    right = choose("default", advantage=wrong_alone | {"learn_from": "positive"})
    assert advantages(right, batch).bears_loss_B.tolist() == [True, False, True, False]
    # By tokens: a rollout counts where one of its drawn tokens has the sign.
    returns = {"kind": "returns", "whiten": "population", "learn_from": "negative"}
    assert advantages(choose("default", advantage=returns), batch).bears_loss_B.tolist() == [
        False,
        True,
        False,
        True,
    ]


def test_who_is_cut_off_or_cannot_be_judged_is_not_informative(choose):
    batch = groups([1.0, 0.0], scored_B=torch.tensor([True, False]))
    assert informative(choose("default").advantage, batch).tolist() == [False, False]
    cut = groups([1.0, 0.0, 0.0])
    cut.truncated_B[1:] = True
    masked = choose("default", advantage={"truncated": "mask"}).advantage
    assert informative(masked, cut).tolist() == [True, False, False]
    dropped = choose("default", advantage={"truncated": "drop"}).advantage
    assert informative(dropped, cut).tolist() == [False, False, False]


def test_any_number_of_a_part_may_be_a_schedule():
    falling = {"from": 0.4, "to": 0.2, "over": 10}
    algorithm = Algorithm.model_validate(
        {
            "surrogate": {"kind": "clip", "high": falling},
            "regularizers": {"kl": {"coefficient": falling}},
            "overlong": {"share": falling},
        }
    )
    check(algorithm, where="rl", max_tokens=100)
    middle = at(algorithm, 5, {})
    assert middle.surrogate.high == pytest.approx(0.3)
    assert middle.regularizers["kl"].coefficient == pytest.approx(0.3)
    assert middle.overlong.share == pytest.approx(0.3)
    assert algorithm.describe().endswith("clip token -0.2 +0.4 · token_mean · k3 0.4 in loss"
        " · length penalty · scheduled")  # fmt: skip
    assert digest(algorithm) != digest(at(algorithm, 0, {}))
    with pytest.raises(ValueError, match=r"dual 1.3 lies inside the clip range"):
        Algorithm.model_validate({"surrogate": {"kind": "clip", "high": falling, "dual": 1.3}})


@pytest.mark.parametrize("kind", ["clip", "gmpo"])
def test_the_upper_side_may_be_the_tighter_one(kind):
    sides = {"clip": {"low": 0.4, "high": 0.1}, "gmpo": {"log_low": 0.4, "log_high": 0.1}}[kind]
    whole = {"kind": "sequence_mean_token_mean"}
    tight = Algorithm.model_validate({"surrogate": {"kind": kind, **sides}, "aggregation": whole})
    # One token a sequence, the ratio e^0.2 = 1.2214 once and e^-0.3 = 0.7408 once, A +1 and -1.
    batch = PolicyBatch(
        mask_BT=torch.ones(2, 1, dtype=torch.bool),
        advantages_BT=torch.tensor([[1.0], [-1.0]]),
        sampled_logprobs_BT=torch.tensor([[-1.2], [-1.0]]),
    )
    loss, metrics = policy_objective(
        tight, torch.tensor([[-1.0], [-1.3]]), batch=batch, denominator=2
    )
    # Held at 1.1 above, or at e^0.1; below, e^-0.3 is within both ranges.
    above = 1.1 if kind == "clip" else math.exp(0.1)
    assert loss.item() == pytest.approx((-above + math.exp(-0.3)) / 2)
    assert metrics["clip_fraction"].item() == 0.5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            (torch.zeros(2, 2), None),
            r"of shape \[2, 2\]; .* \[B, T\] = \[3, 3\] or \[B, 1\]",
        ),
        ((torch.zeros(3), None), r"tensor of shape \[3\]; .* \[B, T\] = \[3, 3\] or \[B, 1\]"),
        ((torch.full((3, 1), torch.nan), None), "NaN or infinity; let it give finite numbers"),
        ((torch.zeros(3, 1), torch.zeros(3, 1)), r"of shape \[3, 1\]; .* \[B, T\] = \[3, 3\]$"),
        (torch.zeros(3, 1), "a Tensor; let it give two things: advantages, and targets"),
    ],
)
def test_advantages_that_are_none_are_refused_with_the_part(choose, monkeypatch, given, said):
    algorithm = choose("default")
    monkeypatch.setattr(type(algorithm.advantage), "estimate", lambda *_, **__: given)
    with pytest.raises(UserError, match=rf"^advantage\.group: `estimate` gave .*{said}"):
        advantages(algorithm, groups([1.0, 0.0, 0.0]))
