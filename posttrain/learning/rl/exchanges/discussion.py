"""Policies that solve, evaluate and score each other's work, and are paid by these scores."""

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.backends.endpoint.config import filled
from posttrain.learning.rl.exchanges.base import Exchange, ExchangeRound
from posttrain.learning.rl.exchanges.floor import Floor, Utterance
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.learning.rl.generation import Generation
    from posttrain.learning.rl.member import Member

_READS = {
    "solve": ("{prompt}", "{discussion}"),
    "evaluate": ("{prompt}", "{solution}"),
    "score": ("{prompt}", "{solution}", "{evaluation}"),
}


_Thread = tuple[Utterance, Utterance]
"""A solution, and what was said of it."""


class Discussion(Exchange):
    """Let all solve, one evaluate each solution, and one score it by solution and evaluation.

    A solution is paid its score, brought to [0, 1], and its evaluation what is left to 1. A scorer
    is paid nothing, and `unreadable` where no score can be read, which pays the other two nothing.
    Who evaluates and who scores is drawn, each policy equally often. In later rounds policies read
    some of what was written of the problem in the round before, and solve it then.
    """

    SOURCE = (
        "Xue et al. 2025, arXiv 2510.08529; their code as wt-2048/comas at 4092f80 has it,"
        " comas_reward.py"
    )
    METRICS: ClassVar[Mapping[str, str]] = {
        "score": "mean pay of the solutions that were scored",
        "score_right": "the same of those that the reward's solver calls right",
        "score_wrong": "the same of those that it calls wrong",
        "unscored": "share of the solutions whose score could not be read",
        "unread": "share of what was to be read that left no room, and the problem was read alone",
    }

    kind: Literal["discussion"] = "discussion"
    rounds: int = Field(default=2, ge=1)
    """How often each policy solves a problem in a step, `group_size` times each."""
    references: int = Field(default=2, ge=1)
    """Most solutions of the round before, with their evaluations, that a solver reads."""
    solve: str = (
        "{prompt}\n\nThis was written of it:\n{discussion}\n\nSolve it yourself, step by step."
    )
    """What a policy reads in later rounds; in the first one it reads the problem as it is."""
    evaluate: str = (
        "{prompt}\n\nA solution:\n{solution}\n\nName every mistake in it, and why it is one. Be"
        " brief."
    )
    """What an evaluator reads."""
    score: str = (
        "{prompt}\n\nA solution:\n{solution}\n\nAn evaluation of it:\n{evaluation}\n\nHow good is"
        " the solution, as far as the evaluation holds? 3: right, no mistake that is named is one."
        " 2: it has small ones, which leave it right. 1: one of them makes it wrong. Say why, and"
        " end with <score>n</score>."
    )
    """What a scorer reads."""
    pattern: str = r"<score>\s*(\d+)\s*</score>"
    """Pattern whose last match has the score as its group."""
    lowest: int = 1
    """The score that pays a solution nothing; what is below it counts as none."""
    highest: int = 3
    """The score that pays a solution 1; what is above it counts as none."""
    unreadable: float = Field(default=-1.0, le=0.0)
    """What a scorer is paid whose text states no score."""

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        for name, parts in _READS.items():
            for part in parts:
                if part not in getattr(self, name):
                    raise ValueError(f"{name} has no {part}, which is to be read; write it there")
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"pattern is none: {error}; correct it") from error
        if groups != 1 or self.lowest >= self.highest:
            raise ValueError(
                "pattern needs one group, and lowest is to be below highest; correct them"
            )
        return self

    def generations(self, members: "Sequence[Member]", at: ExchangeRound) -> "list[Generation]":
        """Discuss, and pay; see `Exchange.generations`."""
        floor = Floor(members, members[0].draft(at.step, at.config), at)
        heard: Sequence[_Thread] = ()
        for number in range(1, self.rounds + 1):
            heard = self._round(floor, heard, number)
        at.measured.update(floor.measured())
        return [
            member.of_step(floor.groups(author), at.step, at.config)
            for author, member in enumerate(members)
        ]

    def paid(self, text: str) -> float | None:
        """Read what a solution is paid for a scorer's text: 0 to 1, or None where it says none."""
        found = re.findall(self.pattern, text)
        score = int(found[-1]) if found else None
        if score is None or not self.lowest <= score <= self.highest:
            return None
        return (score - self.lowest) / (self.highest - self.lowest)

    def _round(self, floor: Floor, heard: Sequence[_Thread], number: int) -> Sequence[_Thread]:
        """Solve, evaluate and score once; what the next round may read."""
        problems = floor.draft.problems
        texts = [
            filled(self.solve, prompt=problem.prompt, discussion=self._excerpt(floor, heard, place))
            for place, problem in enumerate(problems)
        ]
        solutions = floor.solved(texts if heard else None, f"solution_{number}")
        asks = [
            filled(self.evaluate, prompt=problems[each.problem].prompt, solution=each.row.text)
            for each in solutions
        ]
        evaluations = floor.asked(solutions, asks, f"evaluation_{number}")
        asks = [
            filled(
                self.score,
                prompt=problems[one.problem].prompt,
                solution=one.row.text,
                evaluation=other.row.text,
            )
            for one, other in zip(solutions, evaluations, strict=True)
        ]
        verdicts = floor.asked(solutions, asks, f"score_{number}")
        for one, other, verdict in zip(solutions, evaluations, verdicts, strict=True):
            score = self.paid(verdict.row.text)
            floor.scored.append((score, one.row.solved))
            pays = (0.0, 0.0, self.unreadable) if score is None else (score, 1.0 - score, 0.0)
            for said, pay in zip((one, other, verdict), pays, strict=True):
                floor.keep(said, pay)
        return [*zip(solutions, evaluations, strict=True)]

    def _excerpt(self, floor: Floor, heard: Sequence[_Thread], problem: int) -> str:
        """Some of what was written of a problem in the round before."""
        threads = [each for each in heard if each[0].problem == problem]
        chance = Random(purpose_seed(floor.at.seed, "heard", problem, len(floor.scored)))
        chosen = chance.sample(threads, min(self.references, len(threads)))
        return "\n\n".join(f"{one.row.text}\n{other.row.text}" for one, other in chosen)
