"""Episodes of several turns: the policy's answers, and what an environment answers to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import model_validator

from posttrain.learning.episodes.branches.base import Branching
from posttrain.learning.episodes.branches.registry import BRANCHINGS
from posttrain.learning.episodes.config import Seats
from posttrain.learning.episodes.step_tries import StepTries
from posttrain.learning.rl.producers.base import Producer, Production, SamplingRound, Workbench
from posttrain.learning.rl.producers.played import EpisodesProducer, refuse_all_broken
from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.asked import Speaker
    from posttrain.learning.rl.rollout import Group
    from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams


class Episodes(EpisodesProducer, Schedulable):
    """Play an episode for each answer: the policy and an environment speak by turns.

    What the policy draws bears loss, and what it reads does not; reward components see what it drew
    as one text, a line a turn. `max_tokens` is the most of one turn. Where the policy plays further
    roles, each role's rollouts are compared among themselves.

    Source: Search-R1, arXiv 2503.09516: turn by turn with a search engine, whose text bears no
    loss. Other environments and further roles are own.
    """

    FOLLOWS: ClassVar[bool] = True

    kind: Literal["episodes"] = "episodes"
    branching: Annotated[Branching, InSlot(BRANCHINGS)] | None = None
    """Where episodes of a group begin inside another one, such as `entropy_rise`; null begins all
    of a group at once, each from the problem."""

    step_tries: StepTries | None = None
    """Calls that failed are drawn again after the episodes, and compared with each other; null
    leaves them as they were."""

    @model_validator(mode="after")
    def _branches_where_states_are_values(self) -> Self:
        if self.branching is not None and self.environment.HOLDS:
            raise ValueError(
                f"branching {self.branching.kind}: a state of environment {self.environment.kind}"
                " names what one episode alone can go on with; leave branching out, or take"
                " another environment"
            )
        if self.step_tries is not None and self.environment.HOLDS:
            raise ValueError(
                f"step_tries: a state of environment {self.environment.kind} names what one episode"
                " alone can go on with, so no turn of it can be said again; leave step_tries out,"
                " or take another environment"
            )
        if (
            self.step_tries is not None
            and "environment" in self.model_fields_set
            and not self.environment.JUDGES
        ):
            raise ValueError(
                f"step_tries: what a call earns is what its environment pays, and what an episode"
                f" is worth in environment {self.environment.kind} a verifier says; leave"
                " step_tries out, or take a world"
            )
        return self

    def start(self, bench: Workbench) -> Production:
        """Begin a run, if the policy's template writes turns as they were drawn."""
        return EpisodesProduction(self, bench, self.seats_at(bench))


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
        from posttrain.learning.rl.drawn import add_step_tries

        config = self.config
        self.seats.begin(at.step)
        speakers = self._speakers(at.params)
        played = play(
            config.environment,
            problems,
            prompts,
            speakers,
            seed=at.params.seed,
            most_turns=config.most_turns,
            most_seconds=config.most_seconds,
        )
        refuse_all_broken(config.environment, played)
        made = [
            config.rows(episodes, problem, group=group, version=at.version)
            for group, (problem, episodes) in enumerate(
                zip(problems, played, strict=True), start=at.first_group
            )
        ]
        if config.step_tries is not None:
            add_step_tries(made, problems, played, speakers, config.environment, config.step_tries)
        return made

    def _speakers(self, params: "SamplingParams") -> "Mapping[str, Speaker]":
        """Who plays, and where episodes branch off by how unsure the present policy is."""
        from posttrain.learning.episodes.forking import with_forks

        branching, policy = self.config.branching, self.bench.policy
        speakers = self.seats.speakers(params)
        if branching is None:
            return speakers
        return with_forks(speakers, branching, None if policy is None else policy.model)

    def state_dict(self) -> dict[str, Any]:
        """What the players keep; see `Production.state_dict`."""
        return self.seats.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.seats.load_state_dict(state)
