"""An answer whose context was begun afresh is read sequence by sequence, as it was drawn."""

import math

import pytest
import torch

from posttrain.data.schemas import Problem
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import Policy
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rewards import port_models
from posttrain.learning.rewards.components.answer_tokens import answers_logprobs, answers_states
from posttrain.learning.rewards.components.base import Answers, Inquiry
from posttrain.learning.rewards.components.turn_information_gain import (
    TurnInformationGainComponent,
)
from posttrain.learning.rewards.port_models import PortModels

PROBLEM = Problem("own", "7 =", "7", 1, "exact")
# Read, drawn; then afresh: read, drawn, read, drawn.
PARTS = [((5, 6, 7, 8), (0, 0, 1, 1)), ((5, 9, 10, 11, 12), (0, 1, 1, 0, 1))]


def answers(parts, *, cut):
    tokens = tuple(token for ids, _ in parts for token in ids)
    drawn = tuple(bool(mark) for _, marks in parts for mark in marks)
    return Answers(
        problem=PROBLEM,
        texts=("a",),
        lengths=(sum(drawn),),
        truncated=(False,),
        token_ids=(tokens,),
        drawn=(drawn,),
        segments=(tuple(len(ids) for ids, _ in parts),) if cut else (),
    )


@pytest.fixture(scope="module")
def policy():
    tokenizer = train_tokenizer(["7 = 7"], vocab_size=262)
    return Policy(build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=1).eval(), tokenizer)


def test_what_is_drawn_in_a_sequence_depends_on_that_sequence_alone(policy):
    alone = [answers_logprobs(policy, [answers([part], cut=False)])[0] for part in PARTS]
    (whole,) = answers_logprobs(policy, [answers(PARTS, cut=True)])
    assert whole == pytest.approx(alone[0] + alone[1], abs=1e-5)
    (as_if_one,) = answers_logprobs(policy, [answers(PARTS, cut=False)])
    assert as_if_one[:2] == pytest.approx(alone[0], abs=1e-5)
    assert max(abs(a - b) for a, b in zip(as_if_one[2:], alone[1], strict=True)) > 1e-3
    # A mean over five drawn tokens: two of the one, three of the other.
    states = [answers_states(policy, answers([part], cut=False))[0] for part in PARTS]
    (mean,) = answers_states(policy, answers(PARTS, cut=True))
    assert torch.allclose(mean, (2 * states[0] + 3 * states[1]) / 5, atol=1e-5)


def test_a_turn_is_asked_behind_what_its_own_sequence_had_before_it(policy, monkeypatch):
    asked = []

    def told(_, ids, wanted):
        asked.extend(zip(ids, wanted, strict=True))
        return [[math.log(1 / (place + 2))] for place in range(len(ids))]

    monkeypatch.setattr(port_models, "drawn_logprobs", told)
    models = PortModels()
    monkeypatch.setattr(models, "reference", lambda _: policy)
    part = TurnInformationGainComponent(model="m")
    seven = policy.tokenizer.encode("7", add_special_tokens=False)
    known = Inquiry(verify=lambda _: [], models=models)
    ((gains,),) = part.score_turns([answers(PARTS, cut=True)], known)
    assert [ids for ids, _ in asked] == [[5, 6, *seven], [5, *seven], [5, 9, 10, 11, *seven]]
    assert all(sum(wanted) == len(seven) and wanted[-1] for _, wanted in asked)
    assert gains == pytest.approx([1 / 3 - 1 / 2, 1 / 4 - 1 / 3, 0.0])
