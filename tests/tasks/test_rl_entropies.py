"""Entropies that are kept in the table of rollouts: what they are, and that nothing else moves."""

import torch

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy
from tests.tasks.exact import trained_on_coins

SETTINGS = {
    "steps": 2,
    "problems_per_step": 4,
    "group_size": 4,
    "max_tokens": 6,
    "temperature": 1.5,
    "updates": {"epochs": 2},
}


def test_they_are_those_before_the_step_learned_and_nothing_else_changes(
    guesser, coins_path, tmp_path
):
    (_, _, without), curve, weights = trained_on_coins(
        SETTINGS, guesser, coins_path, tmp_path / "without"
    )
    (_, _, kept), again, same = trained_on_coins(
        SETTINGS | {"learner": {"entropies": True}}, guesser, coins_path, tmp_path / "kept"
    )
    assert (again, same) == (curve, weights)
    assert kept["curve"].read_bytes() == without["curve"].read_bytes()
    plain, asked = (read_table(each["rollouts"], ROLLOUTS) for each in (without, kept))
    assert asked.drop("entropies").equals(plain.drop("entropies"))
    assert plain["entropies"].list.len().sum() == 0
    assert asked["entropies"].list.len().equals(asked["logprobs"].list.len())
    policy = load_policy(guesser)
    for row in asked.filter(step=1).head(3).iter_rows(named=True):
        begin = row["spans"][1]["begin"]
        with torch.no_grad():
            logits = policy.model(input_ids=torch.tensor([row["token_ids"]])).logits[0] / 1.5
        probabilities = logits[begin - 1 : -1].softmax(-1)
        expected = -(probabilities * probabilities.log()).sum(-1)
        torch.testing.assert_close(torch.tensor(row["entropies"]), expected, atol=1e-4, rtol=0)
