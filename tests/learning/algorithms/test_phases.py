"""Two surrogates of which a number says which one holds; values worked out by hand."""

import math

import pytest
import torch

from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.algorithms.check import check_on_policy, note_on_ratio
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.objective import policy_objective
from posttrain.stage.errors import UserError
from posttrain.stage.schedule import NumberSchedules

CLIP = {"kind": "clip", "low": 0.2, "high": 0.2}
UNIFORM = {"kind": "uniform_value", "rho": 1.0}


def phases(phase, first=CLIP, second="reinforce", **more):
    surrogate = {"kind": "by_phase", "first": first, "second": second, "phase": phase}
    return Algorithm.model_validate({"surrogate": surrogate, **more})


def loss_of(algorithm, logprobs_BT):
    """Of one rollout of two tokens with advantages 2 and -1, sampled at probabilities 0.4, 0.5."""
    batch = PolicyBatch(
        mask_BT=torch.ones(1, 2, dtype=torch.bool),
        advantages_BT=torch.tensor([[2.0, -1.0]]),
        sampled_logprobs_BT=torch.tensor([[0.4, 0.5]]).log(),
    )
    loss, metrics = policy_objective(algorithm, logprobs_BT, batch=batch, denominator=2)
    return loss, metrics["clip_fraction"].item()


@pytest.mark.parametrize(
    ("phase", "of_clip", "clipped"),
    # Ratios are 1.5 and 1: the first one is clipped at 1.2, so that the clip's losses are -2.4, 1.
    [(0.0, 1.0, 0.5), (0.25, 0.75, 0.5), (1.0, 0.0, 0.0)],
)
def test_the_losses_of_both_are_mixed(phase, of_clip, clipped):
    logprobs_BT = torch.tensor([[0.6, 0.5]]).log().requires_grad_()
    loss, fraction = loss_of(phases(phase), logprobs_BT)
    of_clip_alone, of_reinforce = (-2.4 + 1.0) / 2, (-2 * math.log(0.6) + math.log(0.5)) / 2
    assert loss.item() == pytest.approx(of_clip * of_clip_alone + (1 - of_clip) * of_reinforce)
    assert fraction == clipped
    # The clipped token has a gradient by the second alone, the other -A of both at ratio 1.
    (slope_BT,) = torch.autograd.grad(loss, logprobs_BT)
    assert slope_BT[0].tolist() == pytest.approx([-(1 - of_clip), 0.5])


def test_at_the_ends_it_is_the_one_that_holds_to_the_bit():
    logprobs_BT = torch.tensor([[0.6, 0.45]]).log()
    for phase, kind in ((0.0, CLIP), (1.0, "reinforce")):
        alone = Algorithm.model_validate({"surrogate": kind})
        assert torch.equal(loss_of(phases(phase), logprobs_BT)[0], loss_of(alone, logprobs_BT)[0])


def test_steps_or_a_metric_change_it():
    logprobs_BT = torch.tensor([[0.6, 0.45]]).log()
    first, second = (loss_of(phases(end), logprobs_BT)[0].item() for end in (0.0, 1.0))
    by_step = NumberSchedules(phases({"from": 0.0, "to": 1.0, "over": 2, "after": 3}))
    found = [loss_of(by_step.at(step), logprobs_BT)[0].item() for step in (0, 3, 4, 5, 9)]
    assert found == pytest.approx([first, first, (first + second) / 2, second, second])
    assert by_step.metrics(4) == {"schedule/surrogate.phase": 0.5}
    follows = {"metric": "rl/entropy", "from": 1.0, "to": 0.0, "low": 0.1, "high": 0.2}
    by_metric = NumberSchedules(phases(follows))
    for entropy, expected in ((0.5, first), (0.05, second), (0.5, first)):
        by_metric.observe({"rl/entropy": entropy})
        assert loss_of(by_metric.at(7), logprobs_BT)[0].item() == expected


def test_three_phases_are_two_within_each_other():
    later = {"kind": "by_phase", "first": "reinforce", "second": "sapo", "phase": 1.0}
    logprobs_BT = torch.tensor([[0.6, 0.45]]).log()
    alone = Algorithm.model_validate({"surrogate": "sapo"})
    found = loss_of(phases(1.0, second=later), logprobs_BT)[0]
    assert torch.equal(found, loss_of(alone, logprobs_BT)[0])


def test_it_needs_what_either_needs_and_has_a_ratio_where_both_have():
    both = phases(0.0, second=UNIFORM)
    assert both.needs == Algorithm.model_validate({"surrogate": UNIFORM}).needs != set()
    assert both.surrogate.HAS_RATIO
    check_on_policy(both, where="rl.algorithm", updates_per_step=4, oldest=1)
    with pytest.raises(UserError, match="surrogate by_phase has no ratio, so it may learn from"):
        check_on_policy(phases(0.0), where="rl.algorithm", updates_per_step=4, oldest=0)
    plain = phases(0.0, second="sapo")
    assert "it is the plain policy gradient" in note_on_ratio(plain, updates_per_step=1, oldest=0)
    other = phases(0.0, second={"kind": "contrastive", "beta": 0.1}, aggregation=BY_SEQUENCE)
    assert note_on_ratio(other, updates_per_step=1, oldest=0) is None


def test_a_ratio_that_only_weighs_is_not_missed():
    """As in on-policy distillation; TRL's CISPO, whose cap is 5, has a bound."""
    for high, noted in ((1e4, False), (5.0, True)):
        capped = Algorithm.model_validate(
            {"surrogate": {"kind": "cispo", "bound": "cap", "high": high}}
        )
        said = note_on_ratio(capped, updates_per_step=1, oldest=0)
        assert (said is not None) == noted


BY_SEQUENCE = {"kind": "sequence_mean_token_mean"}


@pytest.mark.parametrize("place", ["first", "second"])
def test_what_either_refuses_is_refused(place):
    with pytest.raises(ValueError, match="surrogate contrastive has one loss per sequence"):
        phases(0.0, **{place: {"kind": "contrastive", "beta": 0.1}})
    with pytest.raises(ValueError, match="there is no surrogate 'clipp'"):
        phases(0.0, **{place: "clipp"})


def test_it_says_what_it_is():
    assert phases(0.5).surrogate.describe() == "clip token -0.2 +0.2, then reinforce, at 0.5"
