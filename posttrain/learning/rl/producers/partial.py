"""Episodes that are played so far in a step, and gone on with by the policy of the next one."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from posttrain.learning.episodes.config import Seats
from posttrain.learning.rl.producers.base import Production, SamplingRound, Workbench
from posttrain.learning.rl.producers.played import EpisodesProducer, refuse_all_broken

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.asked import Speaker
    from posttrain.learning.episodes.game import Game
    from posttrain.learning.rl.rollout import Group
    from posttrain.learning.rollouts.engines.base import Prompt


class Partial(EpisodesProducer):
    """Play an episode for so many rounds a step, and go on with what is not over in the next step.

    It goes on from where it stands, by the weights of then; every token keeps the version and the
    log-probability of the policy that drew it. A step learns from the groups in which all episodes
    are over, and as many are begun anew: `problems_per_step` is how many are at work. Where none is
    over, the one that was begun first is played to its end.

    Source: partial rollouts of Kimi k1.5 (arXiv 2501.12599, section 2.6.2); with `at_once`,
    generation that is interrupted and goes on under new weights, as in AReaL (arXiv 2505.24298,
    section 4.1).
    """

    kind: Literal["partial"] = "partial"
    rounds: int = Field(default=1, ge=1)
    """Rounds of a step; in each, everybody who is asked in an episode speaks once."""
    at_once: int | None = Field(default=None, ge=1)
    """Tokens of a turn that are drawn in a round: a longer turn goes on in the next round, by
    whichever weights there are then. Null draws a turn to its end."""
    most_steps: int = Field(default=1, ge=1)
    """Steps over which an episode may be carried; in the last one it is played to its end."""

    @model_validator(mode="after")
    def _can_wait(self) -> Self:
        if self.most_seconds is not None:
            raise ValueError(
                "most_seconds is for episodes that are played to their end in one go, and these"
                " are gone on with in later steps; leave it out"
            )
        if self.environment.HOLDS:
            raise ValueError(
                f"environment {self.environment.kind} holds something open between turns that a run"
                " which was killed cannot take up again, so its episodes cannot be carried over;"
                " set kind to episodes"
            )
        return self

    @property
    def carried(self) -> int:
        """See `Producer.carried`."""
        return self.most_steps

    @property
    def drawn_at_once(self) -> int | None:
        """See `PlayConfig.drawn_at_once`."""
        return self.at_once

    def start(self, bench: Workbench) -> Production:
        """Begin a run, if the policy's template writes turns as they were drawn."""
        return PartialProduction(self, self.seats_at(bench))


class _Begun(NamedTuple):
    """The episodes of one problem, some of which are not over."""

    step: int
    """In which they were begun."""
    games: "list[Game]"

    @property
    def is_over(self) -> bool:
        return all(game.end is not None for game in self.games)


@dataclass
class PartialProduction(Production):
    """Plays a little of everything in each step; its state is all that is not over."""

    config: Partial
    seats: Seats
    begun: list[_Begun] = field(default_factory=list)
    """In the order in which they were begun."""

    @property
    def at_work_on(self) -> Collection[str]:
        """Ids of the problems of the episodes that are not over; see `Production.at_work_on`."""
        return [each.games[0].problem.id for each in self.begun]

    def produce(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> list["Group"]:
        """Play on what was begun, and begin on what is new; see `Production.produce`."""
        from posttrain.learning.episodes.play import begin_games, close_games

        environment = self.config.environment
        size, seed = at.params.num_samples, at.params.seed
        self.seats.begin(at.step)
        with self._closing_at_errors():
            for problem, prompt in zip(problems, prompts, strict=True):
                self.begun.append(_Begun(at.step, []))
                games = begin_games(environment, problem, prompt, size=size, seed=seed)
                self.begun[-1].games.extend(games)
            self._play(self.seats.speakers(at.params), step=at.step)
        done = [each for each in self.begun if each.is_over]
        self.begun = [each for each in self.begun if not each.is_over]
        close_games(environment, [game for each in done for game in each.games])
        played = [[game.episode for game in each.games] for each in done]
        refuse_all_broken(environment, played)
        return [
            self.config.rows(episodes, each.games[0].problem, group=group, version=at.version)
            for group, (each, episodes) in enumerate(
                zip(done, played, strict=True), start=at.first_group
            )
        ]

    def _play(self, speakers: "Mapping[str, Speaker]", *, step: int) -> None:
        """Play the rounds of a step, and what may wait no longer to its end."""
        from posttrain.learning.episodes.play import EpisodeLimits, play_round, still_playing

        config, limits, rounds = self.config, EpisodeLimits(self.config.most_turns), 0
        while now := still_playing([game for each in self.begun for game in each.games], limits):
            if rounds >= config.rounds:
                due = [each for each in self.begun if step - each.step >= config.most_steps]
                if not any(each.is_over for each in self.begun):
                    # A step must have something to learn from: the group that was begun first.
                    due = due or self.begun[:1]
                now = still_playing([game for each in due for game in each.games], limits)
                if not now:
                    return
            play_round(config.environment, now, speakers)
            rounds += 1

    @contextmanager
    def _closing_at_errors(self) -> Iterator[None]:
        """Close what is open of every episode, should the run end here."""
        from posttrain.learning.episodes.play import close_games

        try:
            yield
        except BaseException:
            close_games(
                self.config.environment, [game for each in self.begun for game in each.games]
            )
            raise

    def state_dict(self) -> dict[str, Any]:
        """All episodes that are not over, and what the players keep."""
        begun = [
            {"step": each.step, "games": [game.state_dict() for game in each.games]}
            for each in self.begun
        ]
        return {"begun": begun, "players": self.seats.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        from posttrain.learning.episodes.game import Game

        self.begun = [
            _Begun(each["step"], [Game.of_state(game) for game in each["games"]])
            for each in state["begun"]
        ]
        self.seats.load_state_dict(state["players"])
