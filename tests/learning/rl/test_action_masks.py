"""Which tokens may be drawn: the set, the policy renormalized over it, and when it is renewed."""

import math

import pytest
import torch

from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import Policy
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rl.action_masks.nucleus import Nucleus, likeliest_set
from posttrain.learning.rl.masked_passes import renormalized


def sets(probs, **settings):
    found = likeliest_set(torch.tensor(probs).log(), **settings)
    return [set(row.nonzero()[:, 0].tolist()) for row in found]


def test_the_set_is_the_smallest_of_its_mass_by_hand():
    probs = [[0.15, 0.5, 0.05, 0.3], [0.25, 0.25, 0.25, 0.25]]
    # 0.5 is below 0.9, 0.8 is, and 0.95 is not: the third token is the one that reaches it.
    assert sets(probs, top_p=0.9)[0] == {1, 3, 0}
    assert sets(probs, top_p=0.7)[0] == {1, 3}
    assert sets(probs, top_p=0.1) == [{1}, {0}]
    # Of equals the first ones: 0.25 and 0.5 are below 0.6, 0.75 is not.
    assert sets(probs, top_p=0.6)[1] == {0, 1, 2}
    assert sets(probs, top_p=0.1, least=3)[0] == {1, 3, 0}
    assert sets(probs, top_p=1.0) == [{0, 1, 2, 3}] * 2


LEFT = [True, False, True, True]


def by_hand(states_ND, targets, allowed, rows=8):
    """The policy of which a state is the logits themselves."""
    return renormalized(
        states_ND,
        torch.tensor(targets),
        logits_of=lambda states_ND: states_ND,
        allowed=lambda begin, end: torch.tensor(allowed)[begin:end],
        rows=rows,
    )


def test_renormalized_log_probabilities_and_their_gradient_by_hand():
    logits_NV = torch.tensor([[0.5, 0.2, 0.2, 0.1]]).log().requires_grad_()
    found = by_hand(logits_NV, [2], [LEFT])
    # 0.5, 0.2 and 0.1 of 0.8 are left: 5/8, 2/8 and 1/8.
    assert found.logprobs_N.tolist() == pytest.approx([math.log(2 / 8)])
    wanted = -sum(p * math.log(p) for p in (5 / 8, 2 / 8, 1 / 8))
    assert found.entropy_N.tolist() == pytest.approx([wanted])
    (slope_NV,) = torch.autograd.grad(found.logprobs_N.sum(), logits_NV)
    # 1 at the token less what is left of each; what may not be drawn has no say.
    assert slope_NV[0].tolist() == pytest.approx([-5 / 8, 0.0, 6 / 8, -1 / 8])
    # PPO's ratio is of such policies: where the tokens outside move alone, it stays 1.
    moved = by_hand(logits_NV.detach() + torch.tensor([0.0, 3.0, 0.0, 0.0]), [2], [LEFT])
    assert (moved.logprobs_N - found.logprobs_N).exp().tolist() == pytest.approx([1.0])


def test_what_was_drawn_counts_as_allowed():
    logits_NV = torch.tensor([[0.5, 0.2, 0.2, 0.1]]).log()
    found = by_hand(logits_NV, [1], [[True, False, False, False]])
    assert found.logprobs_N.tolist() == pytest.approx([math.log(0.2 / 0.7)])


def test_slices_give_what_the_whole_gives():
    torch.manual_seed(0)
    logits_NV, allowed_NV = torch.randn(7, 4), torch.rand(7, 4) < 0.6
    targets, slopes = [0, 3, 1, 1, 2, 0, 3], []
    for rows in (8, 3, 1):
        leaf_NV = logits_NV.clone().requires_grad_()
        found = by_hand(leaf_NV, targets, allowed_NV.tolist(), rows=rows)
        found.logprobs_N.sum().backward()
        slopes.append((found.logprobs_N.tolist(), found.entropy_N.tolist(), leaf_NV.grad.tolist()))
    assert slopes[0] == slopes[1] == slopes[2]


def a_weight(model):
    return float(next(iter(model.parameters()))[-1, -1])


def test_the_copy_is_renewed_behind_every_second_step_and_comes_back_from_its_state():
    tokenizer = train_tokenizer(["1 + 2 ="], vocab_size=262)
    policy = Policy(build_llama(tokenizer, hidden=8, layers=1, heads=2, seed=0), tokenizer)
    mask = Nucleus(top_p=0.5, every=2).start(policy)
    seen = []
    for step in range(4):
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.fill_(float(step))
        mask.observe(policy.model, step=step)
        seen.append(a_weight(mask.model))
    assert seen[1:] == [1.0, 1.0, 3.0]
    assert seen[0] not in (0.0, 1.0)
    again = Nucleus(top_p=0.5, every=2).start(policy)
    with torch.no_grad():
        next(iter(again.model.parameters())).fill_(-1.0)
    again.load_state_dict(mask.state_dict())
    assert a_weight(again.model) == 3.0
    assert not any(parameter.requires_grad for parameter in mask.model.parameters())


def test_special_tokens_may_always_be_drawn():
    tokenizer = train_tokenizer(["1 + 2 ="], vocab_size=262)
    policy = Policy(build_llama(tokenizer, hidden=8, layers=1, heads=2, seed=0), tokenizer)
    ids_BT = torch.tensor([[1, 5, 9, 7], [1, 6, 0, 0]])
    wanted_BT = torch.tensor([[False, False, True, True], [False, True, False, False]])
    allowed = Nucleus(top_p=1e-4).start(policy).at(ids_BT, wanted_BT, 1.0)
    found_NV = allowed(0, 3)
    with torch.no_grad():
        logits_BTV = policy.model(input_ids=ids_BT).logits
    likeliest = logits_BTV.argmax(-1)
    # The third of the wanted ones stands in the second row, behind its first token.
    for row_V, top in zip(
        found_NV, (likeliest[0, 1], likeliest[0, 2], likeliest[1, 0]), strict=True
    ):
        assert set(row_V.nonzero()[:, 0].tolist()) == {0, 1, 2, int(top)}
    assert torch.equal(allowed(1, 3), found_NV[1:])
