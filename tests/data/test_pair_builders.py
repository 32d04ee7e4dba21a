"""Pair builders by hand: what stands against what, and what becomes of ready pairs."""

import polars as pl
import pytest

from posttrain.data.pair_builders.margin import MarginPairs
from posttrain.data.pair_builders.registry import PAIR_BUILDERS
from posttrain.data.pair_builders.reward_augmented import RewardAugmentedPairs
from posttrain.data.pair_inputs import accumulated, read_pair_inputs
from posttrain.data.pairs import build_pairs
from posttrain.data.schemas import (
    COMPLETIONS,
    IDENTITY,
    PAIRS,
    Completion,
    Problem,
    completions_table,
    with_row_ids,
)
from posttrain.data.tables import write_table
from posttrain.stage.errors import UserError


def samples(scores, generator="policy"):
    """COMPLETIONS from {problem name: {text: score}}."""
    rows = []
    for name, answers in scores.items():
        problem = Problem("sums", name, "1", 1, "exact")
        rows += [
            Completion(problem, text, generator, score, score > 0.5, "")
            for text, score in answers.items()
        ]
    return completions_table(rows)


def built(builder, table, reference=None, limit=9):
    options = {"pairs_per_problem": limit, "heldout_fraction": 0.5, "seed": 0}
    part = PAIR_BUILDERS.parse(builder)
    return build_pairs(table, builder=part, reference_samples=reference, **options)


def sides(pairs):
    return set(pairs.select("chosen", "rejected").rows())


FOUR = {"p": {"a": 1.0, "b": 0.75, "c": 0.25, "d": 0.125}}


def test_margin_sets_every_sample_against_those_that_score_lower_by_the_margin():
    # Gaps: ab 0.25, ac 0.75, ad 0.875, bc 0.5, bd 0.625, cd 0.125.
    assert sides(built({"kind": "margin", "at_least": 0.5}, samples(FOUR))) == {
        ("a", "c"),
        ("a", "d"),
        ("b", "c"),
        ("b", "d"),
    }
    assert sides(built({"kind": "margin", "at_least": 0.5, "at_most": 0.75}, samples(FOUR))) == {
        ("a", "c"),
        ("b", "c"),
        ("b", "d"),
    }
    assert sides(built({"kind": "margin", "at_least": 2}, samples(FOUR))) == set()


def test_margin_takes_the_widest_pairs_first():
    assert sides(built("margin", samples(FOUR), limit=2)) == {("a", "d"), ("a", "c")}


def test_margin_that_is_no_interval():
    with pytest.raises(UserError, match="at_most 0.2 is below at_least 0.5"):
        MarginPairs.parse({"at_most": 0.2}, where="builder")


def test_policy_against_reference_prefers_whichever_scores_higher():
    own = samples({"p": {"a": 1.0, "b": 0.0}, "q": {"x": 1.0}})
    theirs = samples({"p": {"c": 0.5, "d": 0.0}, "other": {"z": 0.0}}, generator="reference")
    pairs = built("policy_vs_reference", own, theirs)
    # b and d are equal; no two of one policy meet; `q` and `other` have one side only.
    assert sides(pairs) == {("a", "c"), ("a", "d"), ("c", "b")}
    assert pairs.filter(chosen="c")["parents"].to_list() == [
        [theirs.row(0, named=True)["id"], own.row(1, named=True)["id"]]
    ]


def test_other_builders_take_samples_of_a_teacher_beside_those_of_the_policy():
    own, teacher = samples({"p": {"wrong": 0.0}}), samples({"p": {"right": 1.0}}, "teacher")
    assert len(built("verifier", own)) == 0
    assert sides(built("verifier", own, teacher)) == {("right", "wrong")}


def test_reward_augmented_writes_each_pair_on_the_condition_of_either_score():
    builder = {"kind": "reward_augmented", "asks": "[{score}] {prompt}"}
    pairs = built(builder, samples({"p {x}": {"good": 1.0, "fine": 0.875, "bad": 0.25}}))
    found = set(pairs.select("prompt", "chosen", "rejected", "chosen_score").rows())
    assert found == {
        ("[1] p {x}", "good", "bad", 1.0),
        ("[0.25] p {x}", "bad", "good", 0.25),
    }
    assert pairs["problem_id"].n_unique() == 1
    assert pairs["id"].n_unique() == 2
    first, second = pairs["parents"].to_list()
    assert first == second[::-1]


def test_reward_augmented_asks_for_both():
    with pytest.raises(UserError, match="must have both"):
        RewardAugmentedPairs.parse({"asks": "{prompt}"}, where="builder")


def pair(prompt, chosen, rejected, scores=(None, None), split="train"):
    return {
        "parents": [],
        "problem_id": prompt,
        "source": "s",
        "prompt": prompt,
        "chosen": chosen,
        "rejected": rejected,
        "split": split,
        "chosen_score": scores[0],
        "rejected_score": scores[1],
        "label_prob": 1.0,
        "rationale": "",
        "step_start": 0,
        "weight": 1.0,
        "context": "",
    }


def table(*rows):
    frame = pl.DataFrame(list(rows), schema={n: PAIRS[n] for n in PAIRS if n != "id"})
    return with_row_ids(frame, IDENTITY["pairs"]).select(list(PAIRS))


@pytest.fixture
def given(tmp_path):
    def read(builder, **tables):
        inputs = {}
        for number, (port, frame) in enumerate(tables.items()):
            inputs[port.replace("__", ".")] = tmp_path / f"{number}.parquet"
            schema = COMPLETIONS if "samples" in port else PAIRS
            write_table(frame, tmp_path / f"{number}.parquet", schema)
        return read_pair_inputs(
            inputs,
            builder=PAIR_BUILDERS.parse(builder),
            pairs_per_problem=2,
            max_pairs=None,
            heldout_fraction=0.5,
            seed=0,
        )

    return read


READY = (
    pair("p", "a", "b", (1.0, 0.25)),
    pair("q", "c", "d", (0.5, 0.5)),
    pair("r", "e", "f", (1.0, 0.75)),
    pair("s", "g", "h"),
)


def test_ready_pairs_are_split_by_problem_where_they_have_no_split(given):
    pairs = given("verifier", pairs=table(*READY))
    assert pairs.drop("split").equals(table(*READY).drop("split"))
    assert pairs["split"].value_counts(sort=True)["count"].to_list() == [2, 2]
    split = table(READY[0], pair("z", "y", "x", split="heldout"))
    assert given("verifier", pairs=split).equals(split)


def test_a_builder_looks_through_ready_pairs(given):
    assert given("margin", pairs=table(*READY))["problem_id"].to_list() == ["p"]
    both = given("reward_augmented", pairs=table(*READY))
    # Without scores, or with equal ones, there is nothing to ask for.
    assert both["problem_id"].to_list() == ["p", "p", "r", "r"]
    assert both.schema == PAIRS
    assert both["prompt"][0] == "Target score of the answer: 1\n\np"


def test_pairs_of_earlier_rounds_come_first_and_keep_their_side(given):
    earlier = table(pair("p", "a", "b", split="heldout"), pair("q", "a", "b"))
    now = table(pair("p", "c", "d"), pair("q", "a", "b"), pair("n", "a", "b", split="heldout"))
    pairs = given("verifier", pairs=now, earlier_pairs__one=earlier)
    assert pairs.select("problem_id", "chosen", "split").rows() == [
        ("p", "a", "heldout"),
        ("q", "a", "train"),
        ("p", "c", "heldout"),
        ("n", "a", "heldout"),
    ]
    assert accumulated([], now) is now
