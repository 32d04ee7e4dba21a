"""The optimum of RL with a divergence, against the model's own probabilities of two words."""

import json
import math
from dataclasses import replace

import pytest
import torch

from posttrain.data.schemas import PROBLEMS, Problem, problems_table
from posttrain.data.sources.word_tree import TREE_WORDS
from posttrain.data.tables import write_table
from posttrain.data.templates import encode_completions, encode_prompts
from posttrain.learning.models.load import load_policy
from posttrain.learning.rollouts.diagnostics.base import Seen
from posttrain.learning.rollouts.diagnostics.posterior import Posterior
from posttrain.stage.errors import UserError

OTHER = Problem("s", "1 + 1 =", "2", 1, "exact")
TREE = Problem(
    "s",
    "say 3",
    "",
    1,
    "regex",
    json.dumps({TREE_WORDS: {"letters": "ud", "length": 1}, "regex": {"pattern": "u"}}),
)


@pytest.fixture
def problems(tmp_path):
    path = tmp_path / "problems.parquet"
    write_table(problems_table([OTHER, TREE]), path, PROBLEMS)
    return path


def said(path):
    """Log-probability of `u` and of `d`, each with its end."""
    policy = load_policy(path)
    (ids,) = encode_prompts(policy.tokenizer, [TREE.prompt])
    found = []
    for told in encode_completions(policy.tokenizer, ["u", "d"]):
        with torch.no_grad():
            whole = policy.model(input_ids=torch.tensor([[*ids, *told]])).logits[0].log_softmax(-1)
        found.append(sum(float(whole[len(ids) + t - 1, token]) for t, token in enumerate(told)))
    return found


def test_the_reference_is_as_far_from_the_optimum_as_the_formula_says(guesser, problems):
    """π* = (p e^2, q) / Z with p and q the reference's shares, at r / β = 1 / 0.5."""
    up, down = said(guesser)
    p = 1 / (1 + math.exp(down - up))
    best = p * math.exp(2) / (p * math.exp(2) + 1 - p)
    seen = Seen(policies={"sft": guesser}, problems=problems, reference="sft")
    figures = Posterior(beta=0.5).diagnose(seen).figures["sft"]

    def entropy(share):
        return -share * math.log(share) - (1 - share) * math.log(1 - share)

    kl = p * math.log(p / best) + (1 - p) * math.log((1 - p) / (1 - best))
    assert figures["kl"] == pytest.approx(kl, abs=1e-5)
    assert figures["entropy"] == pytest.approx(entropy(p), abs=1e-5)
    assert figures["optimal_entropy"] == pytest.approx(entropy(best), abs=1e-5)
    assert figures["right"] == pytest.approx(p, abs=1e-5)
    assert figures["said"] == pytest.approx(math.exp(up) + math.exp(down), rel=1e-4)


def test_where_nothing_asks_for_a_word_it_says_so(guesser, tmp_path):
    path = tmp_path / "other.parquet"
    write_table(problems_table([OTHER]), path, PROBLEMS)
    seen = Seen(policies={"sft": guesser}, problems=path, reference="sft")
    with pytest.raises(UserError, match="none asks for a word of a tree"):
        Posterior().diagnose(seen)
    with pytest.raises(UserError, match="no problems are connected"):
        Posterior().diagnose(Seen(policies={"sft": guesser}, reference="sft"))


def test_a_problem_of_a_source_needs_what_scores_it(guesser, tmp_path):
    """Rows of a source name no verifier; it stands beside them."""
    path, beside = tmp_path / "problems.parquet", tmp_path / "verifiers.json"
    bare = replace(TREE, verifier="")
    write_table(problems_table([bare]), path, PROBLEMS)
    seen = Seen(policies={"sft": guesser}, problems=path, reference="sft")
    with pytest.raises(UserError, match="name no verifier"):
        Posterior().diagnose(seen)
    beside.write_text(json.dumps({"s": {"kind": "regex", "pattern": "u"}}))
    figures = Posterior().diagnose(Seen(**{**vars(seen), "verifiers": beside})).figures
    assert 0.0 < figures["sft"]["right"] < 1.0
