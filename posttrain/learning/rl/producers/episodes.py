"""Episodes of several turns: the policy's answers, and what an environment answers to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import model_validator

from posttrain.learning.episodes.branches.base import Branching, Forks
from posttrain.learning.episodes.branches.registry import BRANCHINGS
from posttrain.learning.episodes.config import PlayConfig, Seats
from posttrain.learning.episodes.environments.base import POLICY, Environment
from posttrain.learning.rl.producers.base import Producer, Production, SamplingRound, Workbench
from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.asked import Speaker
    from posttrain.learning.episodes.episode import Episode, Segment
    from posttrain.learning.rl.rollout import Group
    from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams


class Episodes(Producer, PlayConfig, Schedulable):
    """Play an episode for each answer: the policy and an environment speak by turns.

    What the policy draws bears loss, and what it reads does not; reward components see what it drew
    as one text, a line a turn. `max_tokens` is the most of one turn. Where the policy plays further
    roles, each role's rollouts are compared among themselves.
    """

    GIVES: ClassVar[frozenset[str]] = frozenset({"states"})
    FOLLOWS: ClassVar[bool] = True

    kind: Literal["episodes"] = "episodes"
    compare: Literal["problem", "episode"] = "problem"
    """Whose rewards are compared: of a role in all episodes of a problem, or of the roles of one
    name, such as `solver:1` and `solver:2`, within an episode."""
    branching: Annotated[Branching, InSlot(BRANCHINGS)] | None = None
    """Where episodes of a group begin inside another one, such as `entropy_rise`; null begins all
    of a group at once, each from the problem."""

    @model_validator(mode="after")
    def _branches_where_states_are_values(self) -> Self:
        if self.branching is not None and not self.environment.FORKS:
            raise ValueError(
                f"branching {self.branching.kind}: a state of environment {self.environment.kind}"
                " names what one episode alone can go on with; leave branching out, or take"
                " another environment"
            )
        return self

    def longest(self, max_tokens: int) -> int:
        """All turns together, and what is summed up between; see `Producer.longest`."""
        draws = self.most_turns + self.context.most_draws(self.most_turns)
        longest = max_tokens * draws
        return longest if self.most_drawn is None else min(longest, self.most_drawn + max_tokens)

    @property
    def players_asked(self) -> Mapping[str, str]:
        """What its roles ask; see `Producer.players_asked`."""
        return self.checkpoints_asked

    def played_in(self) -> Environment:
        """Its environment; see `Producer.played_in`."""
        return self.environment

    def start(self, bench: Workbench) -> Production:
        """Begin a run, if the policy's template writes turns as they were drawn."""
        from posttrain.learning.episodes.append import refuse_rewriting

        refuse_rewriting(bench.tokenizer, self.environment.authors())
        return EpisodesProduction(self, bench, self.seated(bench.table()))


@dataclass
class EpisodesProduction(Production):
    """Plays; what has a state are the players, as an episode is over within its round."""

    config: Episodes
    bench: Workbench
    seats: Seats

    def use(self, producer: Producer) -> None:
        """Play as many turns as the step allows; see `Production.use`."""
        assert isinstance(producer, Episodes)
        self.config = producer

    def produce(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> list["Group"]:
        """Play as many episodes of each problem as a group has; see `Production.produce`."""
        from posttrain.learning.episodes.play import play
        from posttrain.learning.rl.drawn import of_episode

        config = self.config
        self.seats.begin(at.step)
        played = play(
            config.environment,
            problems,
            prompts,
            self._speakers(at.params),
            seed=at.params.seed,
            most_turns=config.most_turns,
            most_seconds=config.most_seconds,
        )
        _refuse_all_broken(config.environment, played)
        return [
            [
                row
                for each in episodes
                for row in of_episode(
                    each,
                    problem,
                    group=group,
                    version=at.version,
                    learning=config.learning,
                    within=config.compare,
                )
            ]
            for group, (problem, episodes) in enumerate(
                zip(problems, played, strict=True), start=at.first_group
            )
        ]

    def _speakers(self, params: "SamplingParams") -> "dict[str, Speaker]":
        """Who plays, and where episodes branch off by how unsure the present policy is."""
        from posttrain.learning.episodes.drawing import Role, first_entropies
        from posttrain.stage.errors import UserError

        branching, policy = self.config.branching, self.bench.policy
        speakers = self.seats.speakers(params)
        if branching is None:
            return speakers
        if policy is None and branching.tokens:
            raise UserError(
                f"rl: branching {branching.kind} asks the policy how unsure it is, and several"
                " processes have a part of it each; leave resources.processes out"
            )
        model = None if policy is None else policy.model

        def entropies(segments: "Sequence[Segment]", count: int) -> list[tuple[float, ...]]:
            assert model is not None
            return first_entropies(model, segments, count, temperature=params.temperature)

        role = speakers[POLICY]
        assert isinstance(role, Role)
        return speakers | {POLICY: replace(role, forks=Forks(branching, entropies))}

    def state_dict(self) -> dict[str, Any]:
        """What the players keep; see `Production.state_dict`."""
        return self.seats.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.seats.load_state_dict(state)


def _refuse_all_broken(environment: Environment, played: "Sequence[Sequence[Episode]]") -> None:
    """End a run whose environment answers nobody any more; a few broken episodes are counted."""
    from posttrain.stage.errors import UserError

    episodes = [episode for group in played for episode in group]
    if episodes and all(episode.end == "failed" for episode in episodes):
        raise UserError(
            f"rl: environment {environment.kind} broke in all {len(episodes)} episodes of a round:"
            f" {episodes[0].situations[-1].failed}"
        )
