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
    from posttrain.learning.rollouts.engines.beginnings import AnswerStart

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
        """Draw behind beginnings of the guide's."""
        from posttrain.learning.rl.drawn import as_groups
        from posttrain.learning.rollouts.engines.base import Prompt
        from posttrain.learning.rollouts.engines.beginnings import (
            AnswerStart,
            drawn_behind,
            whole_text,
        )

        samples = self.guide.sample(prompts, self._guides(at.params))
        each = self._by_prompt(samples, problems, prompts, at)
        starts = [
            AnswerStart(f"{prompt.id}/{sample.index}", prompt.token_ids, sample.token_ids[:kept])
            for _, prompt, sample, kept in each
        ]
        one = replace(at.params, num_samples=1)
        drawn = [group[0] for group in drawn_behind(self.bench.engine, starts, one)]
        asked = [Prompt(start.id, (*start.prompt, *start.tokens)) for start in starts]
        groups = as_groups(drawn, [problem for problem, *_ in each], asked)
        found = []
        for (row,), start, more in zip(groups, starts, drawn, strict=True):
            text = whole_text(self.bench.tokenizer, start.tokens, more.token_ids, row.text)
            share = len(start.tokens) / (len(start.tokens) + len(more.token_ids))
            found.append(row._replace(text=text, facts=((BY_GUIDE, share),)))
        return found

    def _ended(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> "list[Rollout]":
        """Let the guide end what the policy began."""
        from posttrain.learning.rl.drawn import as_groups
        from posttrain.learning.rollouts.engines.base import Prompt
        from posttrain.learning.rollouts.engines.beginnings import AnswerStart, drawn_behind

        samples = self.bench.engine.sample(prompts, at.params)
        each = self._by_prompt(samples, problems, prompts, at)
        both = [entry for entry in each if entry[3]]
        starts = [
            AnswerStart(f"{prompt.id}/{sample.index}", prompt.token_ids, sample.token_ids[:kept])
            for _, prompt, sample, kept in both
        ]
        one = replace(self._guides(at.params), num_samples=1)
        ends = [group[0] for group in drawn_behind(self.guide, starts, one)]
        asked = [Prompt(start.id, (*start.prompt, *start.tokens)) for start in starts]
        rest = as_groups(ends, [problem for problem, *_ in both], asked) if ends else []
        ended = iter(zip(starts, rest, strict=True))
        rows = [row for group in as_groups(samples, problems, prompts) for row in group]
        return [
            self._finished(row, *next(ended)) if kept else row._replace(facts=((BY_GUIDE, 0.0),))
            for row, (*_, kept) in zip(rows, each, strict=True)
        ]

    def _finished(self, row: "Rollout", start: "AnswerStart", rest: "Group") -> "Rollout":
        """Keep the tokens that the guide went on from, and judge them with its end."""
        from posttrain.learning.rl.drawn import read_and_said
        from posttrain.learning.rollouts.engines.beginnings import whole_text

        (end,) = rest
        last = end.token_ids[len(start.prompt) + len(start.tokens) :]
        return row._replace(
            # What follows the last drawn token is in the text alone: no loss depends on it.
            token_ids=(*start.prompt, *start.tokens),
            spans=read_and_said(start.prompt, start.tokens),
            logprobs=row.logprobs[: len(start.tokens)],
            end=end.end,
            text=whole_text(self.bench.tokenizer, start.tokens, last, end.text),
            facts=((BY_GUIDE, len(last) / (len(start.tokens) + len(last))),),
        )

    def _guides(self, params: "SamplingParams") -> "SamplingParams":
        """As the policy draws, by chances of its own."""
        return replace(params, seed=purpose_seed(params.seed, "guide"))

    def _by_prompt(
        self,
        samples: "Sequence[Sample]",
        problems: Sequence["Problem"],
        prompts: Sequence["Prompt"],
        at: SamplingRound,
    ) -> "list[tuple[Problem, Prompt, Sample, int]]":
        """Say of each whole answer how many tokens of it are kept; 0 where one writes alone."""
        size, found = at.params.num_samples, []
        for place, sample in enumerate(samples):
            problem, prompt = problems[place // size], prompts[place // size]
            chance = Random(purpose_seed(at.params.seed, "guided", prompt.id, sample.index))
            both = chance.random() < self.config.share and len(sample.token_ids) > 1
            kept = chance.randint(1, len(sample.token_ids) - 1) if both else 0
            found.append((problem, prompt, sample, kept))
        return found
