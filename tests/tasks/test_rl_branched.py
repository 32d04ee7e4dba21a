"""Rollouts that go on from inside of others: where, what is read, what is judged, and exact."""

from random import Random

import pytest

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.producers.branched import Branched
from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from tasks.rl.config import RlStageConfig
from tests.tasks.test_rl_ahead import SMALL, trained

NOW = {"staleness": 0, "algorithm": "grpo"}
BRANCHES = NOW | {"producer": {"kind": "branched", "each": 1, "shortest": 1}}


@pytest.fixture(scope="module")
def inputs(guesser, coins_path):
    return {"policy": guesser, "problems": coins_path}


def test_the_place_is_one_of_the_least_decided_that_may_be_branched_before():
    """Of words 1 to 4, by hand: 1 is one character long, 4 no word; of 2 and 3 the latter leads."""
    words, entropies = ["begin", "a", "and", " so", ""], [9.0, 8.0, 1.0, 2.0, 9.0]
    assert Branched(top=1).place(entropies, words, Random(0)) == 3
    assert Branched(top=1, shortest=1).place(entropies, words, Random(0)) == 1
    assert Branched(top=1, shortest=0).place(entropies, words, Random(0)) == 1
    drawn = {Branched(top=20).place(entropies, words, Random(seed)) for seed in range(20)}
    assert drawn == {2, 3}
    assert Branched(shortest=4).place(entropies, words, Random(0)) == 0
    assert Branched().place([], [], Random(0)) == 0


def test_a_branch_reads_the_beginning_of_another_answer_and_is_judged_with_it(inputs, tmp_path):
    outputs, _ = trained(inputs, tmp_path / "run", **BRANCHES)
    config = RlStageConfig(**SMALL | BRANCHES)
    rows = read_table(outputs["rollouts"], ROLLOUTS).to_dicts()
    groups = {}
    for row in rows:
        groups.setdefault((row["step"], row["group"]), []).append(row)
    begun = 0
    for group in groups.values():
        roots = [row for row in group if not row["facts"]]
        branches = [row for row in group if row["facts"]]
        assert len(roots) == -(-config.group_size // 2)
        assert len(roots) + len(branches) == config.group_size
        for branch in branches:
            root = roots[int(branch["episode"].split("/")[1])]
            kept, prompt = int(branch["facts"][0]["value"]), root["spans"][0]["end"]
            begun += kept > 0
            assert branch["spans"][0]["end"] == prompt + kept
            assert branch["token_ids"][: prompt + kept] == root["token_ids"][: prompt + kept]
            drawn = [span for span in branch["spans"] if span["drawn"]]
            assert len(branch["logprobs"]) == drawn[0]["end"] - drawn[0]["begin"]
    assert begun
    replayed = replay(
        config, inputs, outputs["rollouts"], StageContext.quiet(tmp_path / "again", seed=3)
    )
    assert replayed == weights_digest(load_policy(outputs["policy"]).model)
