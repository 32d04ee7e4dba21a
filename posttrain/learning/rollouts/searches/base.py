"""What a search is: a part that attempts a problem until it is content, each time wiser."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import (
        Prompt,
        RolloutEngine,
        Sample,
        SamplingParams,
    )
    from posttrain.learning.rollouts.scoring import ScoredSample


@dataclass(frozen=True)
class SearchBench:
    """What a search works with."""

    engine: "RolloutEngine"
    """Draws tokens from the policy."""
    policy: "Policy"
    """The policy itself, whose tokens and end tokens are read."""
    score: "Callable[[Sequence[tuple[Problem, Sample]]], list[ScoredSample]]"
    """Scores whole answers by their problems' verifiers."""
    report: Callable[[int], None]
    """Is told how many problems are done."""


class Search(Part):
    """Attempts problems again and again, each attempt by what the ones before it came to.

    Each attempt is an answer from its first to its last token and is kept; so a problem's attempts
    may be counted, and their texts are the tree that was searched.
    """

    def attempts(
        self,
        problems: "Sequence[Problem]",
        prompts: "Sequence[Prompt]",
        params: "SamplingParams",
        bench: SearchBench,
    ) -> "list[ScoredSample]":
        """Search for an answer to every problem.

        What is drawn for a problem may depend on it, the seed and the policy alone.

        Args:
            problems: What to answer.
            prompts: Their prompts as tokens, in the same order; each leaves room for an answer.
            params: Temperature, most tokens of a whole answer, seed.
            bench: Engine, policy, verifiers.

        Returns:
            The attempts, problem by problem in the order given, each problem's in their order.

        """
        raise NotImplementedError

    def searched(
        self,
        problems: "Sequence[Problem]",
        prompts: "Sequence[Prompt]",
        params: "SamplingParams",
        **bench: Any,
    ) -> "list[ScoredSample]":
        """Search for answers to problems; one whose prompt leaves no room has one empty attempt.

        Args:
            problems: What to answer.
            prompts: Their prompts, in the same order.
            params: How to sample.
            **bench: Of `SearchBench`.

        Returns:
            All attempts, problem by problem in the order given.

        """
        from posttrain.learning.rollouts.engines.base import FinishReason, Sample
        from posttrain.learning.rollouts.limits import leaves_room

        given = SearchBench(**bench)
        room = [leaves_room(prompt, given.engine.context_length) for prompt in prompts]
        fit = [place for place, fits in enumerate(room) if fits]
        made = self.attempts(
            [problems[place] for place in fit], [prompts[place] for place in fit], params, given
        )
        found: dict[str, list[ScoredSample]] = {}
        for each in made:
            found.setdefault(each.problem.id, []).append(each)
        for problem, fits in zip(problems, room, strict=True):
            if not fits:
                empty = Sample(problem.id, 0, (), (), "", FinishReason.LENGTH, policy_version=0)
                found[problem.id] = given.score([(problem, empty)])
        return [each for problem in problems for each in found.get(problem.id, ())]
