"""A diagnostic of games of answers, against the model's own probabilities."""

import math

import pytest
import torch

from posttrain.data.schemas import PROBLEMS, Problem, problems_table
from posttrain.data.tables import write_table
from posttrain.data.templates import encode_prompts
from posttrain.learning.models.load import load_policy
from posttrain.learning.rewards.verifiers.duel import DuelVerifier
from posttrain.learning.rewards.verify import metadata_for
from posttrain.learning.rollouts.diagnostics.base import Seen
from posttrain.learning.rollouts.diagnostics.exploitability import Exploitability
from posttrain.stage.errors import UserError

OTHER = Problem("s", "1 + 1 =", "2", 1, "exact")


def test_how_far_a_policy_can_be_beaten_is_computed_from_its_probabilities(guesser, tmp_path):
    """Two answers, 1 preferred to 2 always: what beats the policy wins where that says 2."""
    game = DuelVerifier(answers=("1", "2"), matrix=((0.5, 1.0), (0.0, 0.5)))
    problem = Problem("s", "up 3", "1", 1, "duel", metadata_for(game))
    policy = load_policy(guesser)
    (ids,) = encode_prompts(policy.tokenizer, [problem.prompt])
    end = policy.tokenizer.eos_token_id
    logprobs = []
    for answer in "12":
        told = [*policy.tokenizer.encode(answer, add_special_tokens=False), end]
        with torch.no_grad():
            whole = policy.model(input_ids=torch.tensor([[*ids, *told]])).logits[0].log_softmax(-1)
        logprobs.append(sum(float(whole[len(ids) + t - 1, token]) for t, token in enumerate(told)))
    says_2 = 1 / (1 + math.exp(logprobs[0] - logprobs[1]))
    path = tmp_path / "problems.parquet"
    write_table(problems_table([problem, OTHER]), path, PROBLEMS)
    found = Exploitability().diagnose(Seen(policies={"sft": guesser}, problems=path))
    # 1 wins a half against itself and all against 2.
    wins = 0.5 * (1 - says_2) + says_2 - 0.5
    assert found.figures["sft"]["exploitability"] == pytest.approx(wins, abs=1e-5)
    write_table(problems_table([OTHER]), path, PROBLEMS)
    with pytest.raises(UserError, match="none is a game of answers"):
        Exploitability().diagnose(Seen(policies={"sft": guesser}, problems=path))
