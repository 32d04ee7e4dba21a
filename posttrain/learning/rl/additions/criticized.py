"""A second pass by critique: a critic says what is wrong with an answer, the policy refines it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from posttrain.backends.endpoint.config import Endpoint
from posttrain.learning.rl.additions.asking import asked_anew, prompts_about, refuse_unasked
from posttrain.learning.rl.additions.base import AdditionAtWork, AdditionBench
from posttrain.learning.rl.additions.refinements import RefinementsAtWork, Refining

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rl.producers.base import SamplingRound
    from posttrain.learning.rl.rollout import Group

_ASKED = """{problem}

A solution of this, which is wrong:
{solution}

The answer is {answer}. Say step by step what is wrong in the solution, and why."""
_PLACES = ("{problem}", "{solution}")

_Place = tuple[int, int]
"""Which group, and which answer of it."""


class Criticized(Refining):
    """Let a critic say what is wrong with each answer that failed, and the policy answer again.

    What is right is told so by rule, and so is what the critic has nothing to say of. The best
    refinements join the group as answers to the problem alone, as those of `refinements` do. The
    critic is the policy itself, which draws at the run's temperature, or a model behind an
    endpoint, which is asked once in a project about one answer.
    """

    SOURCE = (
        "Critique-GRPO, arXiv 2506.03106; zhangxy-2019/critique-GRPO at 55f4661,"
        " critique_prompts.py (generate_critique, critique_type text)"
    )

    kind: Literal["criticized"] = "criticized"
    critic: Endpoint | None = None
    """Where the model answers that criticizes; null for the policy itself."""
    ask: str = _ASKED
    """What the critic is asked; {problem}, {solution} and {answer}, the reference, stand for these.
    """
    temperature: float = Field(default=0.0, ge=0.0)
    """Of a critic behind an endpoint."""
    max_tokens: int = Field(default=512, ge=1)
    """Longest critique of a critic behind an endpoint; the policy's are as long as its answers."""

    @field_validator("ask")
    @classmethod
    def _asks_about_both(cls, text: str) -> str:
        refuse_unasked("ask", text, _PLACES)
        return text

    def start(self, bench: AdditionBench) -> AdditionAtWork:
        """Begin a run; see `Addition.start`."""
        return CriticizedAtWork(self, bench)


class CriticizedAtWork(RefinementsAtWork):
    """Has all failed answers of a step criticized at once, and draws once for all groups."""

    def __init__(self, config: Criticized, bench: AdditionBench) -> None:
        super().__init__(config, bench)
        self._critic = config

    def critiques(
        self, groups: "Sequence[Group]", problems: "Sequence[Problem]", at: "SamplingRound"
    ) -> Sequence[Sequence[str]]:
        """Have what failed criticized; see `RefinementsAtWork.critiques`."""
        failed = {
            (number, place): asked_anew(
                self._critic.ask,
                problem=problems[number].prompt,
                solution=row.text,
                answer=problems[number].answer,
            )
            for number, group in enumerate(groups)
            for place, row in enumerate(group)
            # What nobody could judge is not to be called wrong.
            if row.solved is False
        }
        said = self._replies(failed) if self._critic.critic else self._drawn(failed, problems, at)
        return [
            [said.get((number, place), "") for place in range(len(group))]
            for number, group in enumerate(groups)
        ]

    def _drawn(
        self, asked: Mapping[_Place, str], problems: "Sequence[Problem]", at: "SamplingRound"
    ) -> dict[_Place, str]:
        """What the policy says; nothing of those behind which it has no room."""
        from posttrain.stage.seeds import purpose_seed

        work = self._bench.work
        prompts = [
            (at_place, prompt)
            for at_place, text in asked.items()
            for prompt in prompts_about(
                problems[at_place[0]], [text], f"criticized-{at_place[1]}", work
            )
        ]
        params = replace(at.params, seed=purpose_seed(at.params.seed, "criticized"))
        drawn = work.engine.sample([each for _, each in prompts], params) if prompts else []
        return {at_place: sample.text for (at_place, _), sample in zip(prompts, drawn, strict=True)}

    def _replies(self, asked: Mapping[_Place, str]) -> dict[_Place, str]:
        """What the endpoint says."""
        from posttrain.backends.endpoint.chat import Question, reply_to
        from posttrain.backends.endpoint.client import open_client

        config = self._critic
        assert config.critic is not None
        questions = [
            Question(text, temperature=config.temperature, max_tokens=config.max_tokens)
            for text in asked.values()
        ]
        return dict(zip(asked, reply_to(open_client(config.critic), questions), strict=True))
