"""Components that wait for each other, combinations by hand, and what a stack refuses."""

from typing import ClassVar, Literal

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.components.base import Answers, Component
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.stack import StackAtWork
from posttrain.stage.errors import UserError
from posttrain.stage.schedule import at
from posttrain.stage.slots import plugged

RIGHT, WRONG, LOST = (Score(value, "") for value in (1.0, 0.0, None))


class Said(Component):
    """Give the number that stands in the text behind its name."""

    RANGE: ClassVar[tuple[float, float]] = (-2.0, 2.0)

    kind: Literal["said"] = "said"
    word: str

    def score(self, group, known):
        found = [dict(part.split("=") for part in text.split()) for text in group.texts]
        return [None if each[self.word] == "?" else float(each[self.word]) for each in found]


class Unit(Said):
    """The same between 0 and 1."""

    RANGE: ClassVar[tuple[float, float]] = (0.0, 1.0)

    kind: Literal["unit"] = "unit"


class Twice(Component):
    """Give twice what another component gave."""

    kind: Literal["twice"] = "twice"
    of: str

    def reads(self):
        return (self.of,)

    def score(self, group, known):
        return [None if each is None else each / 2 for each in group.scores[self.of]]


class Solves(Component):
    """Give 1 where the answer is right, and remember how many it has seen."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"solved"})

    kind: Literal["solves"] = "solves"

    def score(self, group, known):
        known.state["seen"] = known.state.get("seen", 0) + len(group.texts)
        return [None if each is None else float(each) for each in group.solved]


@pytest.fixture(autouse=True)
def plugins():
    parts = {"said": Said, "unit": Unit, "twice": Twice, "solves": Solves}
    with plugged(lambda: {"component": parts}):
        yield


def group(*texts, name="p"):
    lengths = tuple(len(text) for text in texts)
    return Answers(Problem("s", name, "1", 1, "exact"), texts, lengths, (False,) * len(texts))


def verify(answers):
    """Right where the text says c=1, lost where it says c=?."""
    codes = {"1": RIGHT, "0": WRONG, "?": LOST}
    return [codes[dict(part.split("=") for part in text.split())["c"]] for text, _ in answers]


def stack(**settings):
    return RewardStack.parse(settings, where="rl.reward")


def earned(settings, *texts, step=0):
    return StackAtWork(verify).earned(stack(**settings), [group(*texts)], step=step)


CORRECT = {"correct": "verifier"}
A = {"a": {"kind": "unit", "word": "a"}}
B = {"b": {"kind": "unit", "word": "b"}}


def test_when_pays_only_where_another_component_says_one():
    bonus = {"a": {"kind": "unit", "word": "a", "when": "correct"}}
    found = earned({"components": CORRECT | bonus}, "c=1 a=0.5", "c=0 a=0.5", "c=? a=0.5")
    assert found.scores["a"] == [0.5, 0.0, None]
    assert found.rewards == [1.5, 0.0, None]
    assert found.solved == [True, False, None]


def test_components_are_asked_after_those_that_they_read_whatever_the_order():
    parts = {"half": {"kind": "twice", "of": "a"}, "right": "solves", **A, **CORRECT}
    settings = {"components": parts, "solved_by": "correct", "bonus_may_outweigh": True}
    found = earned(settings, "c=1 a=1", "c=? a=0.5")
    assert list(found.scores) == ["half", "right", "a", "correct"]
    assert found.scores["half"] == [0.5, 0.25]
    assert found.scores["right"] == [1.0, None]


def test_what_a_component_remembers_is_its_own_and_in_the_state():
    work = StackAtWork(verify)
    parts = CORRECT | {"one": "solves", "two": "solves"}
    settings = stack(components=parts, bonus_may_outweigh=True)
    for _ in range(2):
        work.earned(settings, [group("c=1", "c=0"), group("c=1")], step=0)
    assert work.state["components"] == {"one": {"seen": 6}, "two": {"seen": 6}}


def test_components_that_wait_for_each_other_are_refused():
    parts = {
        "one": {"kind": "twice", "of": "two"},
        "two": {"kind": "twice", "of": "one"},
        **CORRECT,
    }
    with pytest.raises(UserError, match=r"rl\.reward: components wait for each other: .*one"):
        stack(components=parts)


def test_a_gate_that_is_failed_fixes_the_reward_and_the_first_one_counts():
    """Gates a (fails at -1), then b from 0.5 on; passed: correct + 0.5 x b."""
    settings = {
        "components": CORRECT | A | B,
        "combine": {
            "kind": "gated",
            "gates": [{"component": "a", "pays": -1}, {"component": "b", "least": 0.5}],
            "sum": {"correct": 1, "b": 0.5},
        },
        "bonus_may_outweigh": True,
    }
    texts = ["c=1 a=0 b=0", "c=1 a=1 b=0.4", "c=1 a=1 b=0.6", "c=0 a=1 b=1", "c=? a=0 b=1"]
    assert earned(settings, *texts).rewards == [-1.0, 0.0, 1.3, 0.5, -1.0]
    assert earned(settings, "c=? a=1 b=1", "c=1 a=? b=1").rewards == [None, None]


def test_a_gate_by_name_pays_all_that_are_no_gate():
    settings = {
        "components": CORRECT | A,
        "combine": {"kind": "gated", "gates": ["a"]},
    }
    assert earned(settings, "c=1 a=1", "c=1 a=0.9", "c=0 a=1").rewards == [1.0, 0.0, 0.0]


def test_the_order_of_gates_matters_to_the_identity():
    kept = [
        stack(components=CORRECT | A | B, combine={"kind": "gated", "gates": gates}).keyed()
        for gates in (["a", "b"], ["b", "a"])
    ]
    assert kept[0] != kept[1]


def test_a_product_takes_everything_where_a_factor_is_zero():
    settings = {
        "components": CORRECT | A | B,
        "combine": {"kind": "product", "sum": {"correct": 1.0, "a": 0.5}, "times": ["b"]},
        "bonus_may_outweigh": True,
    }
    texts = ["c=1 a=1 b=0.5", "c=0 a=1 b=1", "c=1 a=1 b=0", "c=1 a=? b=1"]
    assert earned(settings, *texts).rewards == [0.75, 0.5, 0.0, None]
    plain = {"components": CORRECT | A, "combine": "product"}
    assert earned(plain, "c=1 a=0.25", "c=0 a=1").rewards == [0.25, 0.0]


def lagrangian(**settings):
    return {
        "components": CORRECT | A,
        "combine": {"kind": "lagrangian", "limits": {"a": 0.5}, "rate": 0.5, **settings},
        "bonus_may_outweigh": True,
    }


def test_multipliers_follow_the_mean_shortfall_of_each_step():
    """Step 0: shortfalls 0.5 and 0.3 in two rounds, one unjudged; lambda 0 + 0.5 x 0.4 = 0.2.

    Step 1 pays 1 - 0.2 x 0.5 = 0.9, then notes -0.5 twice: 0.2 - 0.25 is below 0.
    """
    work, settings = StackAtWork(verify), stack(**lagrangian())
    first = [work.earned(settings, [group(text)], step=0) for text in ("c=1 a=0", "c=0 a=0.2")]
    assert [each.rewards for each in first] == [[1.0], [0.0]]
    assert work.earned(settings, [group("c=1 a=?")], step=0).rewards == [None]
    second = work.earned(settings, [group("c=1 a=0", "c=1 a=1")], step=1)
    assert second.rewards == pytest.approx([0.9, 1.1])
    assert work.measured(settings) == {"multiplier/a": pytest.approx(0.2)}
    work.earned(settings, [group("c=1 a=1", "c=1 a=1")], step=2)
    assert work.measured(settings) == {"multiplier/a": pytest.approx(0.2)}
    work.earned(settings, [group("c=1 a=1")], step=3)
    assert work.measured(settings) == {"multiplier/a": 0.0}


def test_multipliers_go_on_from_a_checkpoint_and_stay_below_most():
    settings = stack(**lagrangian(rate=10.0, most=2.0, limits={"a": {"at_most": 0.0}}))
    whole, killed = StackAtWork(verify), StackAtWork(verify)
    for step in range(3):
        found = whole.earned(settings, [group("c=1 a=1")], step=step)
        resumed = StackAtWork(verify, dict(killed.state))
        assert resumed.earned(settings, [group("c=1 a=1")], step=step) == found
        killed = resumed
    assert found.rewards == [1.0 - 2.0]


def test_weights_are_schedules_of_the_step():
    falling = {"from": 1.0, "to": 0.2, "over": 4}
    settings = {
        "components": CORRECT | A,
        "combine": {"kind": "sum", "weights": {"a": falling}},
    }
    written = stack(**settings)
    assert written.model_dump()["combine"]["weights"] == {"a": falling}
    rewards = [
        StackAtWork(verify).earned(at(written, step, {}), [group("c=0 a=1")], step=step).rewards[0]
        for step in (0, 2, 9)
    ]
    assert rewards == pytest.approx([1.0, 0.6, 0.2])


@pytest.mark.parametrize(
    "settings",
    [
        {"components": CORRECT | A},
        {"components": CORRECT | A | B, "combine": {"kind": "sum", "weights": {"b": 0.0}}},
        {"components": CORRECT | {"a": {"kind": "said", "word": "a", "when": "correct"}},
         "combine": {"kind": "sum", "weights": {"a": 0.5}}},
        # Correctness pays nothing here, so that nothing outweighs it.
        {"components": CORRECT | A, "combine": {"kind": "sum", "weights": {"correct": 0.0}}},
        {"components": CORRECT | A | B, "combine": {"kind": "gated", "gates": ["correct"]}},
        {"components": CORRECT | A | B, "combine": {"kind": "product"}},
        # That a right answer may fail a gate is what the gate is for.
        {"components": CORRECT | A,
         "combine": {"kind": "gated", "gates": [{"component": "a", "pays": -1.0}]}},
    ],
)  # fmt: skip
def test_a_bonus_that_stays_below_correctness_is_taken(settings):
    assert stack(**settings).components


@pytest.mark.parametrize(
    ("settings", "wrong", "right"),
    [
        ({"components": CORRECT | A | B}, "2", "1"),
        ({"components": CORRECT | {"a": {"kind": "said", "word": "a"}}}, "2", "-1"),
        (
            {"components": CORRECT | A, "combine": {"kind": "sum", "weights": {"a": 1.5}}},
            "1.5",
            "1",
        ),
        # 1.2 at one end of the schedule.
        (
            {
                "components": CORRECT | A,
                "combine": {
                    "kind": "sum",
                    "weights": {"a": {"from": 0.1, "to": 1.2, "over": 9}},
                },
            },
            "1.2",
            "1",
        ),
        # What pays only where a right answer may be, and costs there.
        (
            {"components": CORRECT | {"a": {"kind": "said", "word": "a", "when": "correct"}}},
            "0",
            "-1",
        ),
        (
            {
                "components": CORRECT | A | {"c": {"kind": "unit", "word": "c", "when": "a"}},
                "combine": {"kind": "gated", "gates": [{"component": "correct", "pays": 3.0}]},
            },
            "3",
            "0",
        ),
        (
            {
                "components": CORRECT | A,
                "combine": {"kind": "gated", "gates": [{"component": "a", "pays": 2.0}]},
            },
            "2",
            "1",
        ),
        (
            {
                "components": CORRECT | A,
                "combine": {"kind": "lagrangian", "limits": {"a": 0.5}, "most": 2.0},
            },
            "1",
            "0",
        ),
    ],
)
def test_a_bonus_that_can_outweigh_correctness_is_refused(settings, wrong, right):
    with pytest.raises(UserError) as error:
        stack(**settings)
    assert f"a wrong answer may earn {wrong} and a right one {right}, so" in str(error.value)
    assert stack(**settings, bonus_may_outweigh=True)


def test_a_score_beyond_the_range_that_is_declared_is_refused():
    with pytest.raises(UserError, match=r"component\.unit: `score` gave 3, but its RANGE is from"):
        earned({"components": CORRECT | A}, "c=1 a=3")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"filter_by": "corect"}, "there is no component 'corect'; did you mean 'correct'?"),
        ({"components": {"reward": "verifier"}}, "components.reward: a component's name is"),
        ({"components": {"a/b": "verifier"}}, "components.a/b: a component's name is a word"),
        (
            {"components": {"correct": {"kind": "verifier", "when": "formt"}}},
            "there is no component 'formt'",
        ),
        (
            {"combine": {"kind": "lagrangian", "limits": {"correct": {"rate": 1.0}}}},
            "give one of at_least and at_most",
        ),
    ],
)
def test_names_and_limits_that_cannot_be_are_refused(settings, told):
    with pytest.raises(UserError) as error:
        stack(**settings)
    assert told in str(error.value)


def test_schedules_beyond_the_sixth_are_tried_at_their_start_too():
    """Eight bonuses of 0.1 in all; the last begins at 2, so that wrong may earn 2.07."""
    names = [f"b{place}" for place in range(8)]
    bonuses = {name: {"kind": "unit", "word": "a"} for name in names}
    small = {"from": 0.01, "to": 0.0125, "over": 9}
    weights = dict.fromkeys(names, small)
    settings = {"components": CORRECT | bonuses}
    assert stack(**settings, combine={"kind": "sum", "weights": weights})
    weights["b7"] = {"from": 2.0, "to": 0.0, "over": 9}
    with pytest.raises(UserError, match=r"a wrong answer may earn 2\.0\d+ and a right one 1, so"):
        stack(**settings, combine={"kind": "sum", "weights": weights})
