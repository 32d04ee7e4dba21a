"""Two more passes of a step where all answers failed: in parts, then from what is wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

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
    from posttrain.learning.rl.rollout import Group

_IN_PARTS = """{problem}

Split this into smaller problems, solve each of them, and put their results together."""
_FROM_WRONG = """{problem}

An earlier solution, which is wrong:
{solution}

Find what is wrong in it, and solve the problem again, step by step."""
_PROBLEM, _SOLUTION = "{problem}", "{solution}"


class Rethought(Addition):
    """Ask anew where a whole group failed: to decompose the problem, then to refine what is wrong.

    Of a problem that no rollout solved, `samples` answers are drawn behind the prompt `decompose`;
    if none of these is right, each is refined once behind the prompt `refine`. What is right of
    either pass joins the group as an answer to the problem alone, so that training and test ask
    alike. With `algorithm.foreign: cloned` it is learned by its likelihood, as fine-tuning does.
    """

    SOURCE = "Cog-Rethinker, arXiv 2510.15979, abstract and introduction"

    kind: Literal["rethought"] = "rethought"
    samples: int = Field(default=8, ge=1)
    """Answers to a problem that are drawn in each of the passes."""
    decompose: str = _IN_PARTS
    """What is asked in the first pass; {problem} stands for the problem."""
    refine: str | None = _FROM_WRONG
    """What is asked in the second, with {solution} for an answer of the first; null leaves it out.
    """

    @model_validator(mode="after")
    def _asks_what_it_should(self) -> Self:
        refuse_unasked("decompose", self.decompose, (_PROBLEM,))
        if self.refine is not None:
            refuse_unasked("refine", self.refine, (_PROBLEM, _SOLUTION))
        return self

    def start(self, bench: AdditionBench) -> AdditionAtWork:
        """Begin a run; see `Addition.start`."""
        return RethoughtAtWork(self, bench)


class RethoughtAtWork(AdditionAtWork):
    """Draws at most twice for all groups of a step."""

    def __init__(self, config: Rethought, bench: AdditionBench) -> None:
        self._config, self._bench = config, bench

    def join(
        self, groups: "Sequence[Group]", problems: "Sequence[Problem]", at: "SamplingRound"
    ) -> Sequence[Joining]:
        """Draw for the groups that failed, and keep what is right; see `AdditionAtWork.join`."""
        config, failed = self._config, _failed(groups)
        asked = {
            place: [self._about(config.decompose, problems[place])] * config.samples
            for place in failed
        }
        right, wrong = self._pass("decomposed", asked, problems, at)
        if config.refine is not None:
            again = {
                place: [self._about(config.refine, problems[place], text) for text in texts]
                for place, texts in wrong.items()
                if not right.get(place)
            }
            refined, _ = self._pass("refined", again, problems, at)
            right = {**right, **{place: texts for place, texts in refined.items() if texts}}
        return [Joining(right.get(place, ())) for place in range(len(groups))]

    def _pass(
        self,
        name: str,
        asked: "Mapping[int, Sequence[str]]",
        problems: "Sequence[Problem]",
        at: "SamplingRound",
    ) -> tuple[dict[int, list[Added]], dict[int, list[str]]]:
        """Draw one answer for each text that is asked; what is right, and what is wrong of it."""
        from posttrain.learning.rollouts.engines.base import FinishReason
        from posttrain.stage.seeds import purpose_seed

        work = self._bench.work
        prompts = [
            (place, prompt)
            for place, texts in asked.items()
            for prompt in prompts_about(problems[place], texts, name, work)
        ]
        params = replace(at.params, num_samples=1, seed=purpose_seed(at.params.seed, name))
        found: dict[int, list[Added]] = {place: [] for place in asked}
        wrong: dict[int, list[str]] = {place: [] for place in asked}
        drawn = work.engine.sample([each for _, each in prompts], params) if prompts else []
        told = [
            (place, sample)
            for (place, _), sample in zip(prompts, drawn, strict=True)
            # One that was cut off would be taught to end where it was.
            if sample.finish_reason == FinishReason.STOP
        ]
        known = work.rewarder.known([(sample.text, problems[place]) for place, sample in told])
        for (place, sample), score in zip(told, known, strict=True):
            if score.correct:
                found[place].append(Added(sample.text, name))
            # What could not be judged is not to be told that it is wrong.
            elif score.correct is False:
                wrong[place].append(sample.text)
        return found, wrong

    def _about(self, template: str, problem: "Problem", solution: str = "") -> str:
        return asked_anew(template, problem=problem.prompt, solution=solution)


def _failed(groups: "Sequence[Group]") -> list[int]:
    """Places of the groups that were judged, and of which nothing is right."""
    return [
        place
        for place, group in enumerate(groups)
        if any(each.solved is not None for each in group) and not any(each.solved for each in group)
    ]
