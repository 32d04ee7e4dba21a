import polars as pl
import pytest
import torch

from posttrain.data.pair_builders.registry import PAIR_BUILDERS
from posttrain.data.pair_facts import PairFacts
from posttrain.data.pairs import PairTable, build_pairs
from posttrain.data.rows import TokenRow
from posttrain.data.schemas import Completion, Problem, completions_table


def samples(verdicts):
    """COMPLETIONS from {problem name: [(text, verified), ...]}."""
    rows = []
    for name, answers in verdicts.items():
        problem = Problem("sums", name, "1", 1, "exact")
        rows += [
            Completion(problem, text, "policy", float(right), right, "correct" if right else "no")
            for text, right in answers
        ]
    return completions_table(rows)


def built(table, builder="verifier", **options):
    settings = {"pairs_per_problem": 8, "heldout_fraction": 0.5, "seed": 0} | options
    return build_pairs(table, builder=PAIR_BUILDERS.parse(builder), **settings)


def build(verdicts, **options):
    return built(samples(verdicts), **options)


BOTH = [("good", True), ("fine", True), ("bad", False), ("worse", False), ("worst", False)]


def test_every_verified_text_meets_every_refuted_one_of_its_problem():
    pairs = build({"p": BOTH, "q": [("yes", True), ("no", False)]})
    found = set(pairs.select("prompt", "chosen", "rejected").rows())
    assert found == {
        ("p", good, bad) for good in ("good", "fine") for bad in ("bad", "worse", "worst")
    } | {("q", "yes", "no")}


def test_a_problem_with_one_kind_of_answer_gives_no_pair():
    pairs = build({"p": BOTH, "all": [("a", True), ("b", True)], "none": [("c", False)]})
    assert set(pairs["prompt"]) == {"p"}


def test_equal_texts_count_once():
    pairs = build({"p": [("good", True), ("good", True), ("bad", False), ("bad", False)]})
    assert len(pairs) == 1


def test_a_small_limit_still_meets_as_many_texts_as_it_can():
    # Two good x three bad; along the diagonal three pairs use both good and all bad texts.
    pairs = build({"p": BOTH}, pairs_per_problem=3)
    assert len(pairs) == 3
    assert set(pairs["chosen"]) == {"good", "fine"}
    assert set(pairs["rejected"]) == {"bad", "worse", "worst"}


@pytest.mark.parametrize("fraction", [0.01, 0.3, 0.99])
def test_the_split_is_by_problem_and_leaves_both_sides_something(fraction):
    verdicts = {f"p{index}": BOTH for index in range(10)}
    pairs = build(verdicts, heldout_fraction=fraction)
    sides = pairs.group_by("prompt").agg(pl.col("split").n_unique())
    assert sides["split"].to_list() == [1] * 10
    heldout = pairs.filter(split="heldout")["prompt"].n_unique()
    assert heldout == {0.01: 1, 0.3: 3, 0.99: 9}[fraction]


def test_parents_name_the_samples_and_the_order_of_rows_does_not_matter():
    table = samples({"p": BOTH, "q": [("yes", True), ("no", False)]})
    options = {"pairs_per_problem": 2, "heldout_fraction": 0.5, "seed": 3}
    pairs = built(table, **options)
    texts = dict(table.select("id", "text").rows())
    for parents, chosen, rejected in pairs.select("parents", "chosen", "rejected").rows():
        assert [texts[parent] for parent in parents] == [chosen, rejected]
    shuffled = built(table.sample(fraction=1.0, shuffle=True, seed=1), **options)
    assert pairs.sort("id").equals(shuffled.sort("id"))


def test_a_limit_on_all_pairs_serves_every_problem_before_it_serves_one_twice():
    verdicts = {f"p{index}": BOTH for index in range(4)}
    assert build(verdicts, max_pairs=4)["prompt"].n_unique() == 4
    counts = build(verdicts, max_pairs=10)["prompt"].value_counts()["count"].to_list()
    assert sorted(counts) == [2, 2, 3, 3]


def test_a_batch_of_pairs_holds_the_chosen_rows_then_the_rejected_ones():
    chosen = [TokenRow((1, 5, 2), 1), TokenRow((1, 2), 1)]
    rejected = [TokenRow((1, 6, 6, 2), 2), TokenRow((1, 7, 2), 1)]
    batch = PairTable(chosen, rejected, pad=0).batch([1, 0])
    assert batch.input_ids_BT.tolist() == [[1, 2, 0, 0], [1, 5, 2, 0], [1, 7, 2, 0], [1, 6, 6, 2]]
    assert batch.wanted_BT[3].tolist() == [False, False, True, True]
    assert batch.num_units == 2


def test_a_batch_of_weighed_pairs_counts_them_by_their_weights():
    rows = [TokenRow((1, 5, 2), 1), TokenRow((1, 2), 1)]
    facts = PairFacts(torch.tensor([3.0, 0.5]), torch.tensor([1.0, 0.8]))
    table = PairTable(rows, rows, pad=0, facts=facts)
    batch = table.batch([1, 0])
    assert batch.num_units == 3.5
    assert batch.pairs.weight_B.tolist() == [0.5, 3.0]
    assert batch.pairs.label_prob_B.tolist() == pytest.approx([0.8, 1.0])
    assert table.batch([1]).num_units == 0.5
    # What is known of the pairs is part of what a run goes on with.
    other = PairTable(rows, rows, pad=0, facts=PairFacts(facts.weight_B, torch.ones(2)))
    assert len({table.digest, other.digest, PairTable(rows, rows, pad=0).digest}) == 3


def scored(scores):
    """COMPLETIONS of one problem from {text: score}; a score of at least 0.5 verifies."""
    problem = Problem("sums", "p", "1", 1, "exact")
    other = Problem("sums", "q", "1", 1, "exact")
    rows = [
        Completion(each, text, "policy", score, score >= 0.5, "x")
        for each in (problem, other)
        for text, score in scores.items()
    ]
    return completions_table(rows)


def sides(table, builder, **options):
    settings = {"pairs_per_problem": 8, "heldout_fraction": 0.5, "seed": 0} | options
    pairs = built(table, builder=builder, **settings)
    return set(pairs.filter(prompt="p").select("chosen", "rejected").rows())


def test_best_and_worst_go_by_score_and_what_lies_between_is_left_out():
    table = scored({"great": 1.0, "fine": 0.7, "poor": 0.2, "bad": 0.0, "awful": 0.0})
    assert sides(table, "best_worst") == {("great", "bad"), ("great", "awful")}
    # All verified and all refuted: the verdict says nothing, the score still does.
    assert sides(scored({"great": 1.0, "fine": 0.7}), "best_worst") == {("great", "fine")}
    assert sides(scored({"one": 0.7, "two": 0.7}), "best_worst") == set()


def test_balanced_pairs_take_the_closest_lengths_first():
    table = scored({"x" * 10: 1.0, "y" * 4: 1.0, "z" * 9: 0.0, "w" * 5: 0.0})
    found = sides(table, "length_balanced", pairs_per_problem=2)
    assert found == {("x" * 10, "z" * 9), ("y" * 4, "w" * 5)}


def test_in_balanced_pairs_length_tells_nothing_about_the_winner():
    # Right answers are longer in five problems and shorter in one.
    verdicts = {f"p{i}": [("r" * (6 + i), True), ("w" * 5, False)] for i in range(5)}
    verdicts["s"] = [("r" * 3, True), ("w" * 5, False)]
    pairs = build(verdicts, builder="length_balanced")
    gaps = sorted(len(a) - len(b) for a, b in pairs.select("chosen", "rejected").rows())
    # The widest of the longer ones go first, until one of either sign is left.
    assert gaps == [-2, 1]
    assert len(build(verdicts)) == 6


def test_a_pair_keeps_the_scores_of_its_sides():
    table = samples({"p": [("good", True), ("bad", False)]})
    half = pl.when(pl.col("verified")).then(0.9).otherwise(0.25)
    (pair,) = built(table.with_columns(score=half), "best_worst").rows(named=True)
    assert (pair["chosen_score"], pair["rejected_score"]) == (0.9, 0.25)
    assert (pair["label_prob"], pair["weight"], pair["step_start"]) == (1.0, 1.0, 0)
