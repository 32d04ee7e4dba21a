"""Producers whose rollouts are episodes: what they have in common, whenever they play."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.episodes.config import PlayConfig, Seats
from posttrain.learning.episodes.environments.base import Environment
from posttrain.learning.rl.producers.base import Producer, Workbench
from posttrain.stage.config import configs_in
from posttrain.stage.errors import UserError
from posttrain.stage.needs import ENDPOINT

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.episode import Episode
    from posttrain.learning.rl.rollout import Group


class EpisodesProducer(Producer, PlayConfig):
    """Where rollouts are episodes, whenever they are played."""

    GIVES: ClassVar[frozenset[str]] = frozenset({"states"})

    compare: Literal["problem", "episode"] = "problem"
    """Whose rewards are compared: of a role in all episodes of a problem, or of the roles of one
    name, such as `solver:1` and `solver:2`, within an episode."""

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

    def seats_at(self, bench: Workbench) -> Seats:
        """Let everybody sit down, if the policy's template writes turns as they were drawn.

        Args:
            bench: With what they play.

        Returns:
            Who plays each role.

        Raises:
            UserError: It does not.

        """
        from posttrain.learning.episodes.append import refuse_rewriting

        refuse_rewriting(bench.tokenizer, self.environment.authors())
        return self.seated(bench.table())

    def beyond_processes(self, processes: int) -> str | None:
        """Say what each process would play otherwise; see `StageConfig.beyond_processes`."""
        if processes == 1 or not (why := self._apart()):
            return None
        return (
            f"{why}, but with resources.processes each process plays all episodes itself, and they"
            " would be others in each; leave resources.processes out"
        )

    def _apart(self) -> str:
        """Say what may go otherwise in each of several processes; empty where nothing does."""
        if not self.environment.EXACT:
            return f"what environment {self.environment.kind} answers may hang on a clock"
        if self.most_seconds is not None:
            return "most_seconds goes by the clock"
        for role, player in self.roles.items():
            if any(ENDPOINT in config.reaches() for config in configs_in(player)):
                return f"who plays {role} answers over a network"
        return ""

    def rows(
        self, episodes: "Sequence[Episode]", problem: "Problem", *, group: int, version: int
    ) -> "Group":
        """Turn the episodes of a problem into its group of rollouts.

        Args:
            episodes: That are over.
            problem: What they were about.
            group: Number of the group.
            version: As `of_episode` is given it.

        Returns:
            Rollouts that have earned nothing yet.

        """
        from posttrain.learning.rl.drawn import of_episode

        learning, within = self.learning, self.compare
        return [
            row
            for each in episodes
            for row in of_episode(
                each, problem, group=group, version=version, learning=learning, within=within
            )
        ]


def refuse_all_broken(environment: Environment, played: "Sequence[Sequence[Episode]]") -> None:
    """End a run whose environment answers nobody any more; a few broken episodes are counted.

    Args:
        environment: What the episodes were played in.
        played: Those of a round, by problem.

    Raises:
        UserError: All of them broke.

    """
    episodes = [episode for group in played for episode in group]
    if episodes and all(episode.end == "failed" for episode in episodes):
        raise UserError(
            f"rl: environment {environment.kind} broke in all {len(episodes)} episodes of a round:"
            f" {episodes[0].situations[-1].failed}"
        )
