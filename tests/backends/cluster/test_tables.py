"""Filters in parts on a cluster judge as they do in one process."""

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from posttrain.backends.cluster.tables import on_cluster
from posttrain.data.filters.minhash import near_duplicates
from posttrain.data.filters.overlap import evaluation_overlap
from posttrain.data.filters.parallel import IN_PROCESS
from posttrain.data.schemas import Problem, problems_table
from posttrain.learning.rewards import on_ray
from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.verifiers.judge import JudgeVerifier
from posttrain.learning.rewards.verify import VerifierCache, metadata_for
from posttrain.learning.rollouts.scoring import verifying
from posttrain.stage.errors import UserError

pytestmark = pytest.mark.slow
WORDS = ["red", "green", "blue", "round", "tall", "old", "new", "hot", "cold", "wet", "dry", "fast"]


LEAK = "six words that stand in both"


def table(number, seed, *more):
    """Problems of few words, so that many are nearly the same, and many share a run."""
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(0, 12))) for _ in range(number // 2)]
    texts += [f"{draw.choice(texts)} {draw.choice(WORDS)}" for _ in range(number - len(texts))]
    texts += more
    problems = [Problem("s", text, str(draw.randint(1, 2)), 1, "exact") for text in texts]
    return problems_table(problems).unique("id", maintain_order=True)


@pytest.mark.parametrize("rows", [7, 1000])
def test_the_judgments_are_those_of_one_process_whatever_the_parts(cluster, some, rows):
    train, heldout = table(60, 1, f"{LEAK}, with more"), table(40, 2, f"here are {LEAK}")
    settings = {"ngram": 4, "boilerplate": 1000}
    here = evaluation_overlap(train, heldout, **settings)
    alike = near_duplicates(train, 0.6, shingle=2)
    if rows == 7:
        assert here["reason"].n_unique() == 3
        assert 5 < (alike["reason"] == "near_duplicate").sum() < 50
    with on_cluster(some(2, rows=rows)) as parallel:
        assert len(parallel.slices(len(train))) == -(-len(train) // rows)
        there = evaluation_overlap(train, heldout, **settings, parallel=parallel)
        assert_frame_equal(there, here)
        assert_frame_equal(near_duplicates(train, 0.6, shingle=2, parallel=parallel), alike)


def test_no_rows_are_no_trouble(cluster, some):
    none = table(10, 1).clear()
    with on_cluster(some(1, rows=5)) as parallel:
        assert near_duplicates(none, 0.6, shingle=2, parallel=parallel).is_empty()
        found = evaluation_overlap(none, none, ngram=4, boilerplate=5, parallel=parallel)
        assert found.is_empty()


def doubled(number, folder):
    """Ends its process the first time that it is asked for 3."""
    marker = Path(folder) / "died"
    if number == 3 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def test_answers_judged_on_the_cluster_have_the_scores_of_one_process(cluster, some, monkeypatch):
    problems = [Problem("s", f"{n} + 1 =", str(n + 1), 1, "exact") for n in range(700)]
    answers = [(f"#### {n + 1 + n % 3 // 2}", problem) for n, problem in enumerate(problems)]
    judge = JudgeVerifier.parse(
        {"endpoint": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}}, where="judge"
    )
    asked = Problem("s", "Is it good?", "", 1, "judge", metadata_for(judge))
    answers.insert(300, ("fine", asked))
    # A model is asked from here, where its key is; this one answers without a network.
    monkeypatch.setattr(
        JudgeVerifier, "verify", lambda _, texts, __: [Score(0.5, "so_so") for _ in texts]
    )
    sent, remote = [], cluster.remote
    monkeypatch.setattr(cluster, "remote", lambda f: sent.append(f) or remote(f))
    with verifying(some(2)) as verify:
        found = verify(answers)
        assert verify(answers) == found
    assert sent == [on_ray._score]
    assert found == VerifierCache()(answers)
    assert found[300] == Score(0.5, "so_so")
    assert Counter(score.reason for score in found) == {
        "correct": 467, "wrong_answer": 233, "so_so": 1
    }  # fmt: skip


def test_a_mistake_of_the_user_in_a_task_arrives_as_it_was_raised(cluster, some):
    unknown = [(f"#### {n}", Problem("s", str(n), "1", 1, "exakt")) for n in range(600)]
    with verifying(some(1)) as verify, pytest.raises(UserError, match="did you mean 'exact'"):
        verify(unknown)


def test_a_task_that_is_lost_is_done_again(cluster, some, tmp_path):
    with on_cluster(some(1)) as parallel:
        assert parallel.each(doubled, range(6), str(tmp_path)) == [0, 2, 4, 6, 8, 10]
    assert (tmp_path / "died").exists()
    assert IN_PROCESS.each(doubled, range(6), str(tmp_path)) == [0, 2, 4, 6, 8, 10]
