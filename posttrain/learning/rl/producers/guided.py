"""Answers that the policy and a guide write together: one begins them, the other ends them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.episodes.environments.single import Single
from posttrain.learning.episodes.players.base import PORT
from posttrain.learning.episodes.players.checkpoint import engine_on, frozen
from posttrain.learning.rl.producers.base import Producer, Production, SamplingRound, Workbench
from posttrain.learning.rollouts.engines.beginnings import AnswerStart
from posttrain.stage.schedule import Schedulable
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.environments.base import Environment
    from posttrain.learning.rl.rollout import Group, Rollout
    from posttrain.learning.rollouts.engines.base import (
        Prompt,
        RolloutEngine,
        Sample,
        SamplingParams,
    )

BY_GUIDE = "guided"
"""Fact of a rollout: the share of its answer's tokens that the guide wrote."""


class Guided(Producer, Schedulable):
    """Let a guide, a frozen checkpoint, write a part of the answers of a step.

    Who begins writes a whole answer, of which a beginning is kept: its length is drawn uniformly,
    and at least one token is left to the other, who goes on to the end. Only what the policy wrote
    bears loss; both are judged as one answer. With the guide's beginnings the policy starts from
    states that are worth starting from (PPO++); with its ends the policy's beginnings earn what a
    better writer makes of them (AggreVaTeD). The fact `guided` is the guide's share of the tokens.
    """

    SOURCE: ClassVar[str] = (
        "RLGF, arXiv:2306.11816; Cornell-RL/tril at b9a4de9, src/tril/algorithms (ppo_pp.py,"
        " aggrevated.py, lols.py, d2lols.py), src/tril/utils/logit_processors.py (RollinProcessor)"
    )
    FOLLOWS: ClassVar[bool] = True

    kind: Literal["guided"] = "guided"
    guide: str = Field(default="guide", pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    """Its name among what is connected to the port `players`."""
    begins: float = Field(default=1.0, ge=0.0, le=1.0)
    """Chance of a step that the guide begins and the policy ends, in place of the other way
    round: 1 is PPO++, 0 AggreVaTeD, what lies between LOLS, and a step from 0 to 1 D2LOLS."""
    share: float = Field(default=0.8, ge=0.0, le=1.0)
    """Chance of an answer that both write it; the policy writes the others alone."""

    @property
    def players_asked(self) -> Mapping[str, str]:
        """The guide's checkpoint; see `Producer.players_asked`."""
        return {f"{PORT}.{self.guide}": "guide"}

    def played_in(self) -> "Environment":
        """Nothing answers; see `Producer.played_in`."""
        return Single()

    def start(self, bench: Workbench) -> Production:
        """Load the guide; see `Producer.start`."""
        return GuidedProduction(self, bench, engine_on(frozen(bench.table(), self.guide)))


@dataclass
class GuidedProduction(Production):
    """Draws twice; it has no state."""

    config: Guided
    bench: Workbench
    guide: "RolloutEngine"

    def use(self, producer: Producer) -> None:
        """Go by the numbers of a step; see `Production.use`."""
        assert isinstance(producer, Guided)
        self.config = producer

    def produce(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> list["Group"]:
        """Let one begin and the other end; see `Production.produce`."""
        coin = Random(purpose_seed(at.params.seed, "guide begins"))
        made = self._begun if coin.random() < self.config.begins else self._ended
        size = at.params.num_samples
        rows = iter(made(problems, prompts, at))
        return [
            [
                next(rows)._replace(group=at.first_group + place, episode=f"{prompt.id}/{index}")
                for index in range(size)
            ]
            for place, prompt in enumerate(prompts)
        ]

    def _begun(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> "list[Rollout]":
        """Let the policy go on from the guide's beginnings."""
        from posttrain.learning.rl.drawn import gone_on

        samples = self.guide.sample(prompts, self._guides(at.params))
        begun = self._beginnings(samples, problems, prompts, at)
        rows = gone_on(self.bench.engine, self.bench.tokenizer, begun, at.params)
        return [
            row._replace(facts=((BY_GUIDE, _share(len(start.tokens), row.num_drawn)),))
            for (_, start), row in zip(begun, rows, strict=True)
        ]

    def _ended(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> "list[Rollout]":
        """Let the guide end what the policy began."""
        from posttrain.learning.rl.drawn import as_groups, gone_on

        samples = self.bench.engine.sample(prompts, at.params)
        begun = self._beginnings(samples, problems, prompts, at)
        both = [(problem, start) for problem, start in begun if start.tokens]
        guides = self._guides(at.params)
        ends = iter(gone_on(self.guide, self.bench.tokenizer, both, guides))
        rows = [row for group in as_groups(samples, problems, prompts) for row in group]
        return [
            _ended_by(next(ends), start, row)
            if start.tokens
            else row._replace(facts=((BY_GUIDE, 0.0),))
            for row, (_, start) in zip(rows, begun, strict=True)
        ]

    def _guides(self, params: "SamplingParams") -> "SamplingParams":
        """As the policy draws, by chances of its own."""
        return replace(params, seed=purpose_seed(params.seed, "guide"))

    def _beginnings(
        self,
        samples: "Sequence[Sample]",
        problems: Sequence["Problem"],
        prompts: Sequence["Prompt"],
        at: SamplingRound,
    ) -> "list[tuple[Problem, AnswerStart]]":
        """Say what is kept of each whole answer: no token where one writes alone."""
        size, found = at.params.num_samples, []
        for place, sample in enumerate(samples):
            problem, prompt = problems[place // size], prompts[place // size]
            chance = Random(purpose_seed(at.params.seed, "guided", prompt.id, sample.index))
            both = chance.random() < self.config.share and len(sample.token_ids) > 1
            kept = sample.token_ids[: chance.randint(1, len(sample.token_ids) - 1) if both else 0]
            name = f"{prompt.id}/{sample.index}"
            found.append((problem, AnswerStart(name, prompt.token_ids, kept)))
        return found


def _ended_by(end: "Rollout", start: AnswerStart, row: "Rollout") -> "Rollout":
    """Keep what the guide went on from, and judge it with the guide's end."""
    from posttrain.learning.rl.drawn import read_and_said

    kept = len(start.tokens)
    return row._replace(
        # What follows the last drawn token is in the text alone: no loss depends on it.
        token_ids=(*start.prompt, *start.tokens),
        spans=read_and_said(start.prompt, start.tokens),
        logprobs=row.logprobs[:kept],
        end=end.end,
        text=end.text,
        facts=((BY_GUIDE, _share(end.num_drawn, kept)),),
    )


def _share(guides: int, policys: int) -> float:
    """The guide's share of an answer's tokens."""
    return guides / (guides + policys)
