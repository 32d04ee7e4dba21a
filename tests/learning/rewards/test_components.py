"""Reward components by hand, and the rule that a right answer is never paid below a wrong one."""

import math
import random
from dataclasses import replace

import pytest
import torch

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.components.base import Answers, Inquiry
from posttrain.learning.rewards.components.registry import COMPONENTS
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.stack import StackAtWork
from posttrain.stage.errors import UserError


def group(texts=(), *, lengths=None, solved=(), truncated=None, name="p", tokens=()):
    count = max(map(len, (texts, lengths or (), solved, tokens)))
    return Answers(
        Problem("s", name, "1", 1, "exact"),
        tuple(texts) or ("",) * count,
        tuple(lengths or [1] * count),
        tuple(truncated or [False] * count),
        token_ids=tuple(map(tuple, tokens)),
        drawn=tuple((True,) * len(ids) for ids in tokens),
        solved=tuple(solved),
    )


def score(kind, answers, *, state=None, max_tokens=None, **settings):
    part = COMPONENTS.parse({"kind": kind, **settings})
    state = {} if state is None else state
    known = Inquiry(lambda _: [], state=state, max_tokens=max_tokens)
    return list(part.score_all([answers], known)[0])


def test_a_format_is_that_of_the_whole_text():
    texts = ["<think>a\nb</think>\n<answer>1</answer>", "x <think></think><answer></answer>", ""]
    assert score("format", group(texts)) == [1.0, 0.0, 0.0]
    assert score("format", group(["#### 1", "a\n#### 1"]), pattern="#### .*") == [1.0, 0.0]


def test_tokens_are_counted():
    assert score("tokens", group(lengths=[3, 7])) == [3.0, 7.0]


def test_a_target_costs_by_the_distance_and_a_budget_only_above():
    lengths = group(lengths=[10, 5, 12, 20, 99])
    assert score("target_length", lengths, target=10) == [0.0, -0.5, -0.2, -1.0, -1.0]
    budget = score("target_length", lengths, target=10, over_only=True)
    assert budget == [0.0, 0.0, -0.2, -1.0, -1.0]


def test_the_overlong_penalty_is_that_of_dapo():
    """A limit of 100 and its last fifth: nothing up to 80, a half at 90, all at 100 and beyond."""
    lengths = group(lengths=[80, 81, 90, 100, 120])
    assert score("overlong_length", lengths, max_tokens=100) == [0.0, -0.05, -0.5, -1.0, -1.0]
    assert score("overlong_length", lengths, limit=100) == [0.0, -0.05, -0.5, -1.0, -1.0]


def test_without_any_limit_a_length_that_asks_for_one_is_refused():
    with pytest.raises(UserError, match="needs a limit of tokens; set its `limit`"):
        score("overlong_length", group(lengths=[1]))


def test_the_cosine_meets_its_ends_and_its_middle():
    """With the authors' values, at 0, half and all of the limit."""
    theirs = {"right": (2.0, 1.0), "wrong": (-10.0, 0.0), "cut_off": -10.0, "limit": 100}
    lengths = [0, 50, 100]
    assert score("cosine_length", group(lengths=lengths, solved=[True] * 3), **theirs) == [
        2.0,
        pytest.approx(1.5),
        pytest.approx(1.0),
    ]
    wrong = group(lengths=[*lengths, 100], solved=[False] * 4, truncated=[False] * 3 + [True])
    assert score("cosine_length", wrong, **theirs) == pytest.approx([-10.0, -5.0, 0.0, -10.0])
    assert score("cosine_length", group(lengths=[1], solved=[None]), **theirs) == [None]


def test_a_cosine_that_pays_wrong_answers_more_is_refused():
    with pytest.raises(ValueError, match="a wrong answer may get 1 and a right one 0"):
        COMPONENTS.parts["cosine_length"](wrong=(0.0, 1.0))


def test_lengths_of_a_group_lie_between_a_half_and_minus_a_half():
    """Lengths 10, 20, 15, 10: 0.5, -0.5, 0, 0.5; wrong ones get at most 0."""
    lengths = group(lengths=[10, 20, 15, 10, 20], solved=[True, True, True, False, False])
    assert score("group_length", lengths) == [0.5, -0.5, 0.0, 0.0, -0.5]
    assert score("group_length", group(lengths=[7, 7], solved=[True, None])) == [0.0, None]


def test_the_best_so_far_is_that_of_the_problem_and_of_the_steps_before():
    """First step: nothing to compare with. Best 8: cos(pi/4), cos(pi/2) = 0, floor, wrong ones."""
    state = {}
    first = group(lengths=[8, 12, 3], solved=[True, True, False])
    assert score("best_length", first, state=state) == [0.0, 0.0, 0.0]
    assert list(state.values()) == [8]
    later = group(lengths=[4, 8, 30, 4, 30, 5], solved=[True, True, True, False, False, None])
    found = score("best_length", later, state=state)
    hand = [math.sqrt(0.5), 0.0, -0.7, 0.0, -1.0]
    assert found[:5] == pytest.approx(hand, abs=1e-12)
    assert found[5] is None
    assert list(state.values()) == [4]
    score("best_length", group(lengths=[9], solved=[True], name="q"), state=state)
    assert sorted(state.values()) == [4, 9]


@pytest.mark.parametrize("floor", [-1.5, 0.5])
def test_a_floor_that_no_best_length_can_have_is_refused(floor):
    with pytest.raises(ValueError, match="floor"):
        COMPONENTS.parse({"kind": "best_length", "floor": floor})


def test_a_meaning_is_held_against_the_final_answer_of_the_reference_and_not_without_one(
    monkeypatch,
):
    """The worked solution's "#### 7" is read as 7; its state and that of one answer are equal."""
    read = []

    class Models:
        tokenizer = None

        def reference(self, _name):
            self.tokenizer = self
            return self

        def encode(self, text, **_):
            read.append(text)
            return [7]

    def states(_policy, ids, _drawn):
        return [torch.tensor([1.0, 0.0] if row[-1] == 7 else [0.0, 1.0]) for row in ids]

    monkeypatch.setattr("posttrain.learning.rewards.port_models.mean_states", states)
    part = COMPONENTS.parse({"kind": "embedding", "model": "m"})
    known = Inquiry(lambda _: [], models=Models())
    answers = group(tokens=[[1, 7], [1, 8]])
    worked = replace(answers, problem=Problem("s", "p", "3 + 4\n#### 7", 1, "exact"))
    assert part.score(worked, known) == [1.0, 0.0]
    assert read == ["7"]
    without = replace(answers, problem=Problem("s", "p", "", 1, "exact"))
    assert part.score(without, known) == [None, None]


def test_length_costs_only_where_the_problem_is_solved_best():
    """Of four groups the first quarter: the one with both right, lengths 10 and 30, z -1 and 1."""
    groups = [
        group(lengths=[5, 6], solved=[True, False]),
        group(lengths=[10, 30], solved=[True, True]),
        group(lengths=[5, 6], solved=[False, False]),
        group(lengths=[5, 6], solved=[None, None]),
    ]
    part = COMPONENTS.parse({"kind": "solved_length", "share": 0.25, "weight": 0.5})
    found = part.score_all(groups, Inquiry(lambda _: []))
    low, high = 1 / (1 + math.e), 1 / (1 + 1 / math.e)
    assert found[1] == pytest.approx([-0.5 * low, -0.5 * high])
    assert [found[0], found[2], found[3]] == [[0.0, 0.0], [0.0, 0.0], [None, None]]


def test_a_confidence_costs_its_squared_distance_from_the_truth():
    texts = ["Confidence: 0.8", "Confidence: 0.2\nconfidence: 0.5", "none", "Confidence: 8", "..."]
    answers = group(texts, solved=[True, False, True, True, None])
    found = score("brier", answers)
    assert found[:4] == pytest.approx([-0.04, -0.25, -1.0, -1.0])
    assert found[4] is None
    ends = group(["Confidence: 0.8.", "Confidence: .5, so"], solved=[True, True])
    assert score("brier", ends) == pytest.approx([-0.04, -0.25])
    percent = score("brier", group(["Confidence: 80"], solved=[True]), scale=100)
    assert percent == pytest.approx([-0.04])


def test_brier_is_least_costly_at_the_share_that_is_right():
    """Seven of ten right: of all confidences in hundredths 0.70 earns most."""
    solved = [True] * 7 + [False] * 3
    earned = {
        q: sum(score("brier", group([f"confidence: {q / 100}"] * 10, solved=solved)))
        for q in range(101)
    }
    assert max(earned, key=earned.get) == 70


def test_the_majority_is_of_what_is_stated_and_a_tie_is_the_first_drawn():
    texts = ["#### 2", "#### 1", "#### 1", "no"]
    assert score("majority", group(texts)) == [0.0, 1.0, 1.0, 0.0]
    assert score("majority", group(["#### 2", "#### 1"])) == [1.0, 0.0]
    assert score("majority", group(["a", "b"])) == [0.0, 0.0]


def test_repetition_counts_n_grams_that_were_there_before():
    """1 2 1 2 1: pairs 12 21 12 21, two of four distinct; three equal tokens, one pair of two."""
    tokens = [(1, 2, 1, 2, 1), (3, 3, 3), (1, 2, 3), (1,)]
    assert score("repetition", group(tokens=tokens), n=2) == [-0.5, -0.5, 0.0, 0.0]


LENGTHS = {
    "target_length": {"target": 20.0},
    "overlong_length": {},
    "cosine_length": {},
    "group_length": {},
    "best_length": {},
    "solved_length": {},
    "told_length": {"costs": {"": 1.0}},
}


def test_no_length_component_is_left_out():
    assert {kind for kind in COMPONENTS.parts if kind.endswith("_length")} == set(LENGTHS)


@pytest.mark.parametrize("kind", LENGTHS)
def test_a_right_answer_is_never_paid_below_a_wrong_one(kind):
    """DRPO's rule, over 200 random steps of groups of one problem, whatever came before."""
    source = random.Random(kind)
    components = {"correct": "verifier", "length": {"kind": kind, **LENGTHS[kind]}}
    stack = RewardStack.parse({"components": components}, where="rl.reward")
    work = StackAtWork(
        lambda answers: [Score(float(text == "right"), "") for text, _ in answers], max_tokens=50
    )
    for step in range(200):
        size = source.randint(2, 6)
        texts = [source.choice(["right", "wrong"]) for _ in range(size)]
        lengths = [source.choice([1, 10, 20, 49, 50, source.randint(1, 50)]) for _ in range(size)]
        cut = [
            length == 50 and text == "wrong" for length, text in zip(lengths, texts, strict=True)
        ]
        found = work.earned(stack, [group(texts, lengths=lengths, truncated=cut)], step=step)
        paid = list(zip(found.solved, found.rewards, strict=True))
        right = [reward for solved, reward in paid if solved]
        wrong = [reward for solved, reward in paid if not solved]
        assert min(right, default=math.inf) >= max(wrong, default=-math.inf)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"kind": "format", "pattern": "("}, "the pattern is no regular expression"),
        ({"kind": "brier", "pattern": "c"}, "must have one group, the confidence, but has 0"),
    ],
)
def test_a_pattern_that_cannot_be_is_refused(settings, told):
    with pytest.raises(UserError, match=told):
        RewardStack.parse({"components": {"correct": "verifier", "x": settings}}, where="rl.reward")


def test_a_short_answer_costs_more_than_a_long_one():
    assert score("shortness", group(lengths=[3, 6, 12]), scale=6.0) == [-2.0, -1.0, -0.5]


def test_what_a_token_costs_stands_before_the_prompt():
    """A limit of 20: an answer of 5 tokens is a quarter of it, one of 40 no more than all."""
    costs = {"Briefly: ": 0.8, "": 0.4, "Not Briefly: ": 0.0}
    answers = group(lengths=[5, 20, 40])
    told = {
        words: replace(answers, problem=replace(answers.problem, context=context))
        for words, context in (
            ("Briefly: ", '{"before":"Briefly: "}'),
            ("Not Briefly: ", '{"system":"Not Briefly: "}'),
            ("", ""),
        )
    }
    paid = {
        words: score("told_length", each, costs=costs, max_tokens=20)
        for words, each in told.items()
    }
    assert paid["Briefly: "] == pytest.approx([-0.2, -0.8, -0.8])
    assert paid[""] == pytest.approx([-0.1, -0.4, -0.4])
    assert paid["Not Briefly: "] == [0.0, 0.0, 0.0]
    assert score("told_length", answers, costs={"Briefly: ": 1.0}, limit=9) == [0.0, 0.0, 0.0]
    with pytest.raises(UserError, match=r"the cost of 'x' must lie in \[0, 1\], got 2"):
        RewardStack.parse(
            {"components": {"a": {"kind": "told_length", "costs": {"x": 2}}}}, where="rl.reward"
        )


def test_order_pays_right_answers_where_it_helped():
    """In order two of three that were judged are right; behind it a half, or three quarters."""

    def of(solved, role="policy", name="p"):
        return replace(group(solved=solved, name=name), role=role)

    told = of((True, True, False, None))
    half, most = (of(each, "shuffled") for each in ((True, False), (True, True, True, False)))
    paid = COMPONENTS.parse({"kind": "order"}).score_all(
        [told, half, told, most, told, of((False,), "shuffled", "q"), told], Inquiry(lambda _: [])
    )
    assert paid[0] == [0.4, 0.4, 0.0, 0.0]
    assert paid[1] == [0.0, 0.0]
    # Two of three that were judged are less than 0.9 of three quarters.
    assert paid[2] == [0.0] * 4
    # What follows is of another problem, or nothing does.
    assert paid[4] == paid[6] == [0.0] * 4
    equal = COMPONENTS.parse({"kind": "order", "ratio": 0.5}).score_all(
        [told, most], Inquiry(lambda _: [])
    )
    assert equal[0] == [0.4, 0.4, 0.0, 0.0]
    part = COMPONENTS.parse({"kind": "order"})
    assert (part.bounds(solved=True), part.bounds(solved=False)) == ((0.0, 0.4), (0.0, 0.0))


def novelties(monkeypatch, texts, agreed, vectors):
    """Score texts by hand-made vectors, in the group's order."""
    monkeypatch.setattr(
        "posttrain.learning.rewards.port_models.mean_states",
        lambda _policy, ids, _drawn: [torch.tensor(vectors[row[-1]]) for row in ids],
    )
    part = COMPONENTS.parse({"kind": "banded_novelty", "model": "m", "of": "agreed"})
    models = type("Models", (), {"reference": lambda _self, _name: None})()
    answers = group([f"#### {each}" if each else "?" for each in texts], tokens=[[0]] * len(texts))
    answers = replace(
        answers,
        token_ids=tuple((place,) for place in range(len(texts))),
        scores={"agreed": agreed},
    )
    return part.score(answers, Inquiry(lambda _: [], models=models))


def test_novelty_moves_an_answer_within_the_band_of_its_side(monkeypatch):
    """Cosines of the first three, 1 selected: 0.8 and 0 from the first, 0.6 between the others.

    Mean to one's side: 0.4, 0.7, 0.3; greatest to anybody: 0.8, 0.8, 0.8 (the fourth is at 0.8
    to the third). So 1 - (0.4 + 0.8) / 2 = 0.4, 0.25, 0.45: from 0.25 to 0.45 over 1/2 to 1. The
    fourth is alone on its side, the fifth states nothing and is compared with nobody.
    """
    vectors = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [-0.6, 0.8], [1.0, 0.0]]
    found = novelties(monkeypatch, ["1", "1", "1", "2", ""], [1.0, 1.0, 1.0, 0.0, 0.0], vectors)
    assert found == pytest.approx([0.875, 0.5, 1.0, -0.5, -1.0], abs=1e-5)


def test_answers_of_equal_novelty_get_the_middle_and_one_that_is_alone_nothing(monkeypatch):
    vectors = [[1.0, 0.0], [1.0, 1e-4], [0.0, 1.0], [0.0, 1.0]]
    found = novelties(monkeypatch, ["1", "1", "2", "3"], [1.0, 1.0, 0.0, 0.0], vectors)
    assert found == [0.75, 0.75, -0.75, -0.75]
    assert novelties(monkeypatch, ["1", "", ""], [1.0, 0.0, 0.0], vectors) == [-1.0] * 3


def test_the_band_of_an_answer_bounds_what_it_may_be_paid():
    part = COMPONENTS.parse({"kind": "banded_novelty", "model": "m", "of": "agreed"})
    assert part.bounds(solved=True) == (0.5, 1.0)
    assert part.bounds(solved=False) == (-1.0, -0.5)
    assert part.ports() == ("references.m",)
    assert part.reads() == ("agreed",)
