"""A stack of reward components at work: each asked after those that it reads, then combined."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

from posttrain.learning.rewards.components.base import WITHIN, Answers, Component, Inquiry, Verify
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rewards.port_models import PortModels
from posttrain.learning.rewards.port_tables import PortTables
from posttrain.stage.errors import UserError
from posttrain.stage.slots import name_of

Scores = dict[str, list[float | None]]
"""Component -> one score per answer, of all groups one after the other."""
TokenScores = dict[str, list[Sequence[float]]]
"""Component that pays within an answer -> one score per drawn token, none if not judged."""


@dataclass(frozen=True)
class Earned:
    """What the answers of one round of sampling earned, one entry each, ``[B]``."""

    scores: Scores
    rewards: Sequence[float | None]
    """What is learned from; None where it could not be judged."""
    solved: Sequence[bool | None]
    """Whether it counts as right; None where it could not be judged."""
    token_rewards: Sequence[tuple[float, ...]]
    """The part of `rewards` that each drawn token is paid by itself; none where none is."""


@dataclass
class StackAtWork:
    """What components are asked with, and what they and the combination remember."""

    known: Verify
    state: dict[str, Any] = field(default_factory=dict)
    """Plain values: of the combination, and of each component that remembers something."""
    max_tokens: int | None = None
    """Longest completion, in tokens."""
    models: PortModels = field(default_factory=PortModels)
    """What the stage's ports bring."""
    tables: PortTables = field(init=False)
    """The tables among it."""

    def __post_init__(self) -> None:
        self.tables = PortTables(self.models.paths)

    def earned(self, stack: RewardStack, groups: Sequence[Answers], *, step: int) -> Earned:
        """Score the answers of one round of sampling, and combine the scores.

        Args:
            stack: As it is at this step.
            groups: P problems, each with its G answers.
            step: 0-based step that they will be learned from in.

        Returns:
            Scores by component, rewards, and who solved the problem.

        Raises:
            UserError: A part gives something other than one finite number, or None, per answer.

        """
        sizes = [len(group.texts) for group in groups]
        scores: Scores = {}
        tokens: TokenScores = {}
        for name in stack.order:
            found = self._scores_of(name, stack, groups, scores, step=step)
            scores[name], tokens[name] = found
        scores = {name: scores[name] for name in stack.components}
        memory, weights = self.state.setdefault("combine", {}), stack.by_token
        given = stack.combine.combine(scores, step=step, state=memory)
        rewards = _numbers(given, sum(sizes), f"{name_of(stack.combine)}: `combine`")
        # Of all components, and so of a reward that asks none of them: weights may be 0.
        out = _left_out(groups, dropped=stack.truncated == "dropped")
        rewards = [None if no else each for no, each in zip(out, rewards, strict=True)]
        paid = _paid_by_token({name: tokens[name] for name in weights}, weights, rewards)
        return Earned(scores, rewards, _solved(scores[stack.solver]), paid)

    def measured(self, stack: RewardStack) -> dict[str, float]:
        """Return what the combination measures of what it remembers."""
        return stack.combine.measured(self.state.get("combine", {}))

    def _scores_of(
        self,
        name: str,
        stack: RewardStack,
        groups: Sequence[Answers],
        scores: Mapping[str, Sequence[float | None]],
        *,
        step: int,
    ) -> tuple[list[float | None], list[Sequence[float]]]:
        """The score of every answer by one component, and those of its tokens if it has some."""
        part = stack.components[name]
        read = {other: scores[other] for other in part.reads()}
        solved = _solved(scores[stack.solver]) if "solved" in part.NEEDS else []
        given, begin = [], 0
        for group in groups:
            end = begin + len(group.texts)
            there = {other: values[begin:end] for other, values in read.items()}
            given.append(replace(group, scores=there, solved=tuple(solved[begin:end])))
            begin = end
        memory = self.state.get("components", {}).get(name, {})
        asked = Inquiry(
            self.known,
            step=step,
            state=memory,
            models=self.models,
            tables=self.tables,
            max_tokens=self.max_tokens,
        )
        tokens: list[Sequence[float]] = []
        found: Sequence[Sequence[float | None]]
        if part.SCOPE in WITHIN:
            found, tokens = _PAID[part.SCOPE](part, given, asked)
        else:
            found = part.score_all(given, asked)
        if memory:
            self.state.setdefault("components", {})[name] = memory
        values = _scores(part, found, [len(group.texts) for group in groups])
        # Before others read it: what was cut off is wrong, or not judged, for them too.
        if name == stack.solver and stack.truncated == "fails":
            wrong = part.bounds(solved=False)[0]
            cut = [each for group in groups for each in group.truncated]
            values = [wrong if out else value for out, value in zip(cut, values, strict=True)]
        out = _left_out(groups, dropped=stack.truncated == "dropped")
        values = [None if no else value for no, value in zip(out, values, strict=True)]
        if part.when is not None:
            values = _where(scores[part.when], values)
            closed = [(gate or 0.0) < 1.0 for gate in scores[part.when]]
            tokens = [
                (0.0,) * len(row) if shut else row
                for row, shut in zip(tokens, closed, strict=bool(tokens))
            ]
        return values, tokens


def _left_out(groups: Sequence[Answers], *, dropped: bool) -> list[bool]:
    """Tell which answers are not judged: what answered them broke, or they are cut off."""
    return [
        broke or (dropped and cut)
        for group in groups
        for cut, broke in zip(
            group.truncated, group.failed or (False,) * len(group.truncated), strict=True
        )
    ]


_Paid = tuple[list[list[float | None]], list[Sequence[float]]]
"""What the places of each answer add up to by group, and the scores of its tokens in one list."""


def _paid_by_tokens(part: Component, groups: Sequence[Answers], asked: Inquiry) -> _Paid:
    """Ask about every drawn token."""
    lengths = [length for group in groups for length in group.lengths]
    of = f"{name_of(part)}: `score_tokens`"
    return _sums(part.score_tokens(groups, asked), groups, lengths, of=of, place="drawn token")


def _paid_by_turns(part: Component, groups: Sequence[Answers], asked: Inquiry) -> _Paid:
    """Ask about every turn, whose last token is paid for it."""
    turns = [each for group in groups for each in group.turns]
    of = f"{name_of(part)}: `score_turns`"
    counts = [len(each) for each in turns]
    found, scores = _sums(part.score_turns(groups, asked), groups, counts, of=of, place="turn")
    return found, [
        [pay for score, length in zip(row, each, strict=True) for pay in _at_last(score, length)]
        if row
        else ()
        for row, each in zip(scores, turns, strict=True)
    ]


def _at_last(score: float, length: int) -> list[float]:
    return [0.0] * (length - 1) + [score]


_PAID = {"token": _paid_by_tokens, "turn": _paid_by_turns}


def _sums(
    found: object, groups: Sequence[Answers], counts: Sequence[int], *, of: str, place: str
) -> _Paid:
    """Add the scores of the places of each answer up, of which there are that many."""
    if not isinstance(found, Sequence) or list(map(len, found)) != [len(g.texts) for g in groups]:
        raise UserError(
            f"rl: {of} was asked of {len(groups)} groups; let it give, for each of their answers, a"
            f" list with one number for each {place}, or None"
        )
    answers = [row for rows in found for row in rows]
    scores: list[Sequence[float]] = [
        () if row is None else _known(_numbers(row, count, of))
        for row, count in zip(answers, counts, strict=True)
    ]
    sums = iter(
        None if row is None else math.fsum(values)
        for row, values in zip(answers, scores, strict=True)
    )
    return [[next(sums) for _ in group.texts] for group in groups], scores


def _known(values: Sequence[float | None]) -> list[float]:
    """Take a token without a score for one that is paid nothing."""
    return [value or 0.0 for value in values]


def _paid_by_token(
    tokens: TokenScores, weights: Mapping[str, float], rewards: Sequence[float | None]
) -> list[tuple[float, ...]]:
    """The weighted sum of the components' scores of each token; none where there is no reward."""
    columns = [[[weights[name] * each for each in row] for row in tokens[name]] for name in weights]
    if not columns:
        return [() for _ in rewards]
    return [
        () if reward is None else tuple(map(math.fsum, zip(*rows, strict=True)))
        for reward, rows in zip(rewards, zip(*columns, strict=True), strict=True)
    ]


def _solved(scores: Sequence[float | None]) -> list[bool | None]:
    return [None if score is None else score >= 1.0 for score in scores]


def _where(opens: Sequence[float | None], values: Sequence[float | None]) -> list[float | None]:
    """The values where another component says 1, else 0; None where that was not judged."""
    return [
        None if gate is None else value if gate >= 1.0 else 0.0
        for gate, value in zip(opens, values, strict=True)
    ]


def _scores(part: Component, found: object, sizes: Sequence[int]) -> list[float | None]:
    """The scores that a component gave the answers of all groups, in one list."""
    of = f"{name_of(part)}: `score`"
    if not isinstance(found, Sequence) or len(found) != len(sizes):
        raise UserError(f"rl: {of} was asked of {len(sizes)} groups; let it give a list for each")
    pairs = zip(found, sizes, strict=True)
    scores = [score for group, size in pairs for score in _numbers(group, size, of)]
    low, high = part.RANGE
    beyond = [each for each in scores if each is not None and not low <= each <= high]
    if beyond:
        raise UserError(
            f"rl: {of} gave {beyond[0]:g}, but its RANGE is from {low:g} to {high:g}; correct the"
            f" score, or the RANGE of {type(part).__name__}, by which bonuses are held against"
            " correctness"
        )
    return scores


def _numbers(found: object, count: int, of: str) -> Sequence[float | None]:
    """Refuse what is not one finite number, or None, for each of some answers."""
    listed = found if isinstance(found, Sequence) else None
    wrong = [each for each in listed or () if each is not None and not _is_finite(each)]
    if listed is None or wrong or len(listed) != count:
        told = (
            f"{len(listed)} numbers" if listed and not wrong else repr(wrong[0] if wrong else found)
        )
        raise UserError(
            f"rl: {of} gave {told} for {count} answers; let it give a list with one finite number"
            " for each, and None for an answer that cannot be judged"
        )
    return listed


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)
