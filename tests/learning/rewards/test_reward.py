"""The reward of an answer: components, their combination, and what counts as solved."""

import copy
from typing import ClassVar, Literal

import pytest
import torch

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.combines.base import Combine
from posttrain.learning.rewards.components.base import Component
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rewards.score import Score
from posttrain.learning.rl.rewarder import Rewarder, SharedRewarder
from posttrain.learning.rl.rollout import Rollout
from posttrain.stage.errors import UserError
from posttrain.stage.slots import Part, plugged

RIGHT, HALF, WRONG, LOST = (Score(value, "") for value in (1.0, 0.5, 0.0, None))


class Brevity(Component):
    """Pay the shortest answer of a group, and nothing where one was cut off."""

    SCOPE: ClassVar[Literal["group"]] = "group"

    kind: Literal["brevity"] = "brevity"

    def score(self, group, known):
        shortest = min(group.lengths)
        return [
            None if cut else float(length == shortest)
            for length, cut in zip(group.lengths, group.truncated, strict=True)
        ]


class Counted(Combine):
    """Pay the number of calls so far."""

    kind: Literal["counted"] = "counted"

    def combine(self, scores, *, step, state):
        state["calls"] = state.get("calls", 0) + 1
        return [float(10 * step + state["calls"]) for _ in scores["correct"]]


class Given(Component):
    """Give what the test gives."""

    ANSWER: ClassVar[object] = None

    kind: Literal["given"] = "given"

    def score(self, group, known):
        return self.ANSWER


class Short(Combine):
    """Forget an answer."""

    kind: Literal["short"] = "short"

    def combine(self, scores, *, step, state):
        return scores["correct"][1:]


PARTS: dict[str, dict[str, type[Part]]] = {
    "component": {"brevity": Brevity, "given": Given},
    "combine": {"counted": Counted, "short": Short},
}


@pytest.fixture
def plugins():
    with plugged(lambda: PARTS):
        yield


def group_of(name, lengths, *, truncated=None):
    """A problem, and rollouts of these lengths that have earned nothing yet."""
    problem = Problem("s", name, "1", 1, "exact")
    rollouts = [
        Rollout(
            problem_id=problem.id,
            source="s",
            group=0,
            episode=f"{name}/{index}",
            token_ids=(0,) * length,
            spans=(),
            logprobs=(0.0,) * length,
            versions=(0,),
            end="tokens" if truncated and truncated[index] else "over",
            text=f"{name}{index}",
        )
        for index, length in enumerate(lengths)
    ]
    return problem, rollouts


def earned(rewarder, groups, *, step=0):
    problems, rollouts = zip(*groups, strict=True)
    return rewarder.rewarded(rollouts, problems, step=step)


def rewarder(scores, **settings):
    given = iter(scores)
    return Rewarder(RewardStack.parse(settings, where="rl.reward"), lambda _: next(given))


def test_by_default_a_right_answer_earns_one_and_partial_credit_nothing():
    groups = [group_of("a", [1, 1]), group_of("b", [1, 1])]
    found = earned(rewarder([[RIGHT, HALF, WRONG, LOST]]), groups)
    assert [[each.reward for each in group] for group in found] == [[1.0, 0.0], [0.0, None]]
    assert [[each.solved for each in group] for group in found] == [[True, False], [False, None]]
    assert found[0][1].components == (("correct", 0.0),)
    assert found[1][1].components == (("correct", None),)


def test_a_graded_verifier_pays_its_score_and_solves_only_in_full():
    settings = {"components": {"grade": {"kind": "verifier", "graded": True}}}
    (found,) = earned(rewarder([[RIGHT, HALF]], **settings), [group_of("a", [1, 1])])
    assert [(each.reward, each.solved) for each in found] == [(1.0, True), (0.5, False)]


def test_components_are_weighed_and_one_that_was_not_judged_leaves_no_reward(plugins):
    """Rewards by hand: 1 + 0.25, 0 + 0.25, 1 + 0, and nothing for a cut one, which is solved."""
    settings = {
        "components": {"correct": "verifier", "short": "brevity"},
        "combine": {"kind": "sum", "weights": {"short": 0.25}},
    }
    group = group_of("a", [2, 2, 3, 9], truncated=[False, False, False, True])
    (found,) = earned(rewarder([[RIGHT, WRONG, RIGHT, RIGHT]], **settings), [group])
    assert [each.reward for each in found] == [1.25, 0.25, 1.0, None]
    assert [each.solved for each in found] == [True, False, True, True]
    assert found[3].components == (("correct", 1.0), ("short", None))


def test_a_weight_of_0_reports_a_component_and_pays_nothing_for_it(plugins):
    settings = {
        "components": {"correct": "verifier", "short": "brevity"},
        "combine": {"kind": "sum", "weights": {"short": 0.0}},
    }
    group = group_of("a", [2, 9], truncated=[False, True])
    (found,) = earned(rewarder([[RIGHT, WRONG]], **settings), [group])
    assert [each.reward for each in found] == [1.0, 0.0]
    assert [dict(each.components)["short"] for each in found] == [1.0, None]


def test_what_solves_may_be_another_component_than_what_pays(plugins):
    settings = {"components": {"short": "brevity", "right": "verifier"}, "solved_by": "short"}
    (found,) = earned(rewarder([[WRONG, RIGHT]], **settings), [group_of("a", [1, 2])])
    assert [each.solved for each in found] == [True, False]
    settings["solved_by"] = None
    (found,) = earned(rewarder([[WRONG, RIGHT]], **settings), [group_of("a", [1, 2])])
    assert [each.solved for each in found] == [False, True]


def test_all_groups_are_verified_at_once():
    asked = []

    def verify(answers):
        asked.append(answers)
        return [RIGHT for _ in answers]

    groups = [group_of("a", [1, 1]), group_of("b", [1])]
    earned(Rewarder(RewardStack(), verify), groups)
    problems = [problem for problem, _ in groups]
    assert asked == [[("a0", problems[0]), ("a1", problems[0]), ("b0", problems[1])]]


def test_what_a_combination_remembers_is_in_the_checkpoint(plugins):
    settings = {"combine": "counted"}
    first = rewarder([[RIGHT], [RIGHT]], **settings)
    groups = [group_of("a", [1])]
    assert [earned(first, groups, step=step)[0][0].reward for step in (0, 1)] == [1.0, 12.0]
    resumed = rewarder([[RIGHT]], **settings)
    resumed.load_state_dict(first.state_dict())
    assert earned(resumed, groups, step=2)[0][0].reward == 23.0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"components": {"a": "verifer"}},
            "rl.reward.components.a: there is no component 'verifer'; did you mean 'verifier'?"
            " If a plug-in offers 'verifer', name its module under `plugins`",
        ),
        (
            {"combine": {"kind": "sum", "weights": {"corect": 1}}},
            "rl.reward: there is no component 'corect'; did you mean 'correct'?",
        ),
        ({"solved_by": "x"}, "rl.reward: there is no component 'x'; add it to components"),
        (
            {"components": {"a": "brevity"}},
            "rl.reward: no component says by itself whether a problem is solved;"
            " set solved_by to one",
        ),
    ],
)
def test_a_stack_that_cannot_be_is_refused(plugins, settings, sentence):
    with pytest.raises(UserError) as error:
        RewardStack.parse(settings, where="rl.reward")
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("scores", "told"),
    [
        (None, "None"),
        ([0.5], "1 numbers"),
        ([0.5, float("nan")], "nan"),
        ([0.5, "1"], "'1'"),
        (torch.zeros(2), "tensor([0., 0.])"),
    ],
)
def test_scores_that_are_none_are_refused_with_the_component(plugins, monkeypatch, scores, told):
    monkeypatch.setattr(Given, "ANSWER", scores)
    settings = {"components": {"correct": "verifier", "mine": "given"}}
    with pytest.raises(UserError) as error:
        earned(rewarder([[RIGHT, WRONG]], **settings), [group_of("a", [1, 1])])
    assert str(error.value) == (
        f"rl: component.given: `score` gave {told} for 2 answers; let it give a list with one"
        " finite number for each, and None for an answer that cannot be judged"
    )


def test_a_combination_that_forgets_an_answer_is_refused(plugins):
    with pytest.raises(UserError, match=r"combine\.short: `combine` gave 1 numbers for 2 answers"):
        earned(rewarder([[RIGHT, WRONG]], combine="short"), [group_of("a", [1, 1])])


class Remembering(Component):
    """Pay how many groups it has seen before."""

    RANGE: ClassVar[tuple[float, float]] = (0.0, 9.0)

    kind: Literal["remembering"] = "remembering"

    def score(self, group, known):
        known.state["seen"] = known.state.get("seen", 0) + 1
        return [float(known.state["seen"] - 1) for _ in group.texts]


class Line:
    """Two processes one after the other: what the main one gave reaches the other one."""

    def __init__(self, *, is_main, sent):
        self.is_main, self.sent = is_main, sent

    def from_main(self, value):
        if self.is_main:
            self.sent.append(copy.deepcopy(value))
            return value
        return self.sent.pop(0)


def test_of_several_processes_the_main_one_asks_and_the_others_learn_of_it():
    def asked(answers):
        calls.append(len(answers))
        return [RIGHT for _ in answers]

    def refuse(answers):
        raise AssertionError("the other process asks nobody")

    parts = {"correct": "verifier", "seen": "remembering"}
    settings = {"components": parts, "bonus_may_outweigh": True}
    with plugged(lambda: {"component": {"remembering": Remembering}}):
        stack = RewardStack.parse(settings, where="rl.reward")
    calls, sent = [], []
    alone = Rewarder(stack, lambda answers: [RIGHT for _ in answers])
    main, other = (
        SharedRewarder(stack, verify, group=Line(is_main=verify is asked, sent=sent))
        for verify in (asked, refuse)
    )
    for step in range(2):
        rounds = [group_of("a", [1, 1]), group_of("b", [1])]
        whole = earned(alone, rounds, step=step)
        assert earned(main, rounds, step=step) == whole
        assert earned(other, rounds, step=step) == whole
    assert [each.reward for group in whole for each in group] == [3.0, 3.0, 4.0]
    assert calls == [3, 3]
    assert other.state_dict() == main.state_dict() == alone.state_dict()
