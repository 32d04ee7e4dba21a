"""A second pass inside of a step: what was drawn is criticized, and refined by the policy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from posttrain.learning.rl.additions.asking import asked_anew, prompts_about, refuse_unasked
from posttrain.learning.rl.additions.base import (
    Added,
    Addition,
    AdditionAtWork,
    AdditionBench,
    Joining,
)

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rl.producers.base import SamplingRound
    from posttrain.learning.rl.rollout import Group, Rollout

_ASKED = """{problem}

An earlier solution:
{solution}

{critique}
Solve the problem again, step by step, and correct what was wrong."""
_PLACES = ("{problem}", "{solution}", "{critique}")


class Refining(Addition):
    """What is refined and what of it joins a group; a kind says where the critiques are from."""

    count: int = Field(default=1, ge=1)
    """Refinements of a group that join it: those with the highest reward, the first of equals."""
    when: Literal["always", "failed"] = "always"
    """Every group that is learned from, or those in which no rollout is right."""
    told: Literal["verdict", "verdict_and_answer"] = "verdict_and_answer"
    """What the critique says: whether the solution is right, or the reference answer too."""
    prompt: str = _ASKED
    """What the policy is asked; {problem}, {solution} and {critique} stand for these."""

    @field_validator("prompt")
    @classmethod
    def _has_places(cls, text: str) -> str:
        refuse_unasked("prompt", text, _PLACES)
        return text

    def critique(self, solved: bool | None, answer: str) -> str:
        """Say of a solution what is known.

        Args:
            solved: Whether it counts as right; None where it could not be judged.
            answer: The reference answer.

        Returns:
            A sentence.

        """
        verdict = f"The solution is {'correct' if solved else 'incorrect'}"
        return f"{verdict}." if self.told == "verdict" else f"{verdict}, the answer is {answer}."

    def asks(self, problem: "Problem", rollout: "Rollout", critique: str = "") -> str:
        """Write what the policy is asked about one of its answers.

        Args:
            problem: What it answers.
            rollout: The answer, rewarded.
            critique: What was said of it; that of the rule where nothing was.

        Returns:
            The text of the prompt.

        """
        return asked_anew(
            self.prompt,
            problem=problem.prompt,
            solution=rollout.text,
            critique=critique or self.critique(rollout.solved, problem.answer),
        )


class Refinements(Refining):
    """Let the policy answer again behind each answer and a critique; the best join the group.

    They are learned from as answers to the problem alone, without solution and critique, so that
    the policy takes in what it could do once it was told. The critique is by rule: whether the
    solution is right, and what the answer is.
    """

    SOURCE = (
        "Critique-GRPO, arXiv 2506.03106; zhangxy-2019/critique-GRPO at e8f03a2,"
        " critique_prompts.py (simple_gt), critique_vllm_rollout_spmd.py (selected_refinements)"
    )

    kind: Literal["refinements"] = "refinements"

    def start(self, bench: AdditionBench) -> AdditionAtWork:
        """Begin a run; see `Addition.start`."""
        return RefinementsAtWork(self, bench)


class RefinementsAtWork(AdditionAtWork):
    """Draws once for all groups of a step."""

    def __init__(self, config: Refining, bench: AdditionBench) -> None:
        self._config, self._bench = config, bench

    def join(
        self, groups: "Sequence[Group]", problems: "Sequence[Problem]", at: "SamplingRound"
    ) -> Sequence[Joining]:
        """Draw a refinement of each answer; see `AdditionAtWork.join`."""
        chosen = [self._chosen(group) for group in groups]
        critiques = self.critiques(chosen, problems, at)
        asked = [
            (number, prompt)
            for number, (rows, said, problem) in enumerate(
                zip(chosen, critiques, problems, strict=True)
            )
            for prompt in prompts_about(
                problem,
                [self._config.asks(problem, *each) for each in zip(rows, said, strict=True)],
                "refined",
                self._bench.work,
            )
        ]
        added: list[list[Added]] = [[] for _ in groups]
        if asked:
            samples = self._bench.work.engine.sample([prompt for _, prompt in asked], at.params)
            for (number, _), sample in zip(asked, samples, strict=True):
                added[number].append(Added(sample.text, "refinement"))
        return [Joining(each, best=self._config.count) for each in added]

    def critiques(
        self,
        groups: "Sequence[Group]",
        problems: "Sequence[Problem]",  # noqa: ARG002 - for another critic
        at: "SamplingRound",  # noqa: ARG002
    ) -> Sequence[Sequence[str]]:
        """Say something of each answer that is refined.

        Args:
            groups: Of each group what is refined of it.
            problems: Of the groups, in their order.
            at: Step, seed, and how to sample.

        Returns:
            A text for each answer; an empty one leaves it to the rule.

        """
        return [[""] * len(group) for group in groups]

    def _chosen(self, group: "Group") -> "Group":
        learned = [each for each in group if each.trained]
        if self._config.when == "failed" and any(each.solved for each in learned):
            return []
        return learned
