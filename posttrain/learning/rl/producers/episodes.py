"""Episodes of several turns: the policy's answers, and what an environment answers to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from posttrain.learning.episodes.environments.base import POLICY, Environment
from posttrain.learning.episodes.environments.single import Single
from posttrain.learning.episodes.registry import EPISODE_ENVIRONMENTS
from posttrain.learning.rl.producers.base import Producer, Production, SamplingRound, Workbench
from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.episode import Episode
    from posttrain.learning.rl.rollout import Group
    from posttrain.learning.rollouts.engines.base import Prompt


class Episodes(Producer, Schedulable):
    """Play an episode for each answer: the policy and an environment speak by turns.

    What the policy draws bears loss, and what it reads does not; reward components see what it drew
    as one text, a line a turn. `max_tokens` is the most of one turn.
    """

    GIVES: ClassVar[frozenset[str]] = frozenset({"states"})
    FOLLOWS: ClassVar[bool] = True

    kind: Literal["episodes"] = "episodes"
    environment: Annotated[Environment, InSlot(EPISODE_ENVIRONMENTS)] = Single()
    """What answers the policy."""
    most_turns: int = Field(default=4, ge=1)
    """Turns of the policy after which an episode ends as it stands; a schedule lets them grow."""

    def longest(self, max_tokens: int) -> int:
        """All turns together; see `Producer.longest`."""
        return max_tokens * self.most_turns

    def start(self, bench: Workbench) -> Production:
        """Begin a run, if the policy's template writes turns as they were drawn."""
        from posttrain.learning.episodes.append import refuse_rewriting

        refuse_rewriting(bench.tokenizer, self.environment.authors())
        return EpisodesProduction(self, bench)


@dataclass
class EpisodesProduction(Production):
    """Plays; it has no state, as an episode is over within its round."""

    config: Episodes
    bench: Workbench

    def use(self, producer: Producer) -> None:
        """Play as many turns as the step allows; see `Production.use`."""
        assert isinstance(producer, Episodes)
        self.config = producer

    def produce(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> list["Group"]:
        """Play as many episodes of each problem as a group has; see `Production.produce`."""
        from posttrain.learning.episodes.play import Role, play
        from posttrain.learning.rl.rollout import of_episode

        role = Role(self.bench.engine, self.bench.tokenizer, at.params)
        played = play(
            self.config.environment,
            problems,
            prompts,
            {POLICY: role},
            seed=at.params.seed,
            most_turns=self.config.most_turns,
        )
        _refuse_all_broken(self.config.environment, played)
        return [
            [of_episode(each, problem, group=group, version=at.step) for each in episodes]
            for group, (problem, episodes) in enumerate(
                zip(problems, played, strict=True), start=at.first_group
            )
        ]


def _refuse_all_broken(environment: Environment, played: "Sequence[Sequence[Episode]]") -> None:
    """End a run whose environment answers nobody any more; a few broken episodes are counted."""
    from posttrain.stage.errors import UserError

    episodes = [episode for group in played for episode in group]
    if episodes and all(episode.end == "failed" for episode in episodes):
        raise UserError(
            f"rl: environment {environment.kind} broke in all {len(episodes)} episodes of a round:"
            f" {episodes[0].situations[-1].failed}"
        )
