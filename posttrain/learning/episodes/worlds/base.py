"""What a world is: an environment that poses its own problems, and knows how they are solved."""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from posttrain.data.plans import plan_of
from posttrain.learning.episodes.contract import check_move, check_posed
from posttrain.learning.episodes.environments.base import (
    POLICY,
    Environment,
    EpisodeState,
    Situation,
)
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.episode import Episode
    from posttrain.learning.episodes.script import Speak

WorldFacts = Mapping[str, Any]
"""All that an episode in a world depends on, beside the seed: JSON values."""


OPPONENT = "opponent"
"""The role that plays against the policy in a world of two players."""


class Posed(NamedTuple):
    """A problem that a world poses."""

    prompt: str
    """What the policy reads first: the rules as far as it must know them, and what it sees."""
    facts: WorldFacts
    """What is there, and what of it is hidden from the policy."""


class Demonstration(NamedTuple):
    """An episode that a script played."""

    said: Sequence[tuple[str, str]]
    """Who said what after the prompt, in order; `assistant` is the policy, and speaks last. Where
    it does not speak first, what comes first it read in place of the prompt."""
    score: float
    """What the policy earned in all; 1 is solved."""
    read: tuple[str, ...] = ()
    """Ids of the rows that were shown in it, see `Situation.read`."""
    others: Mapping[str, Sequence[tuple[str, str]]] = {}
    """Role -> the same of each other role that spoke, in which `assistant` is that role."""


_MOST_TURNS = 1000
"""A world ends its episodes itself; this is for one that does not."""
_TOGETHER = 64
"""Episodes that are demonstrated side by side in a world that answers several at once."""


class World(Environment):
    """An environment that poses its own problems; define `pose`, `begin`, `step` and the two moves.

    Its settings shape what is posed, such as a size, and are those of a source. All that playing
    depends on is in a problem's facts, so that a stage names the world's kind alone. What roles
    earn in an episode adds up to a number from 0 to 1, and 1 is solved.
    """

    JUDGES: ClassVar[bool] = True
    SIZES: ClassVar[tuple[str, ...]] = ("size",)
    """The settings that make its problems larger or smaller, the most telling one first."""

    @abstractmethod
    def pose(self, draw: Random) -> Posed:
        """Pose a problem.

        Args:
            draw: Where all chance comes from.

        Returns:
            What is asked, and what there is.

        """
        raise NotImplementedError

    def posed(self, draw: Random) -> Posed:
        """Pose a problem, and refuse what can be none.

        Args:
            draw: Where all chance comes from.

        Returns:
            What `pose` gave.

        Raises:
            UserError: It is no text with facts that are JSON; with the file.

        """
        return Posed(*check_posed(self, self.pose(draw)))

    @abstractmethod
    def begin(self, facts: WorldFacts, seed: int) -> Situation:
        """Begin an episode, as `Environment.start` does.

        Args:
            facts: Of the problem.
            seed: Of the problem: all episodes of a group begin alike.

        Returns:
            Where the episode stands, with who speaks first.

        """
        raise NotImplementedError

    @abstractmethod
    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Say what a good player says, who knows no more than the role has read.

        An opponent that is to err now and then, as the problem has it, errs here.

        Args:
            state: Where the episode stands.
            role: Who is asked.
            draw: Chooses among moves that are equally good.

        Returns:
            A turn, as a policy would write it.

        """
        raise NotImplementedError

    @abstractmethod
    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Say what somebody says who knows how a move is written, and nothing else.

        Args:
            state: Where the episode stands.
            role: Who is asked.
            draw: Chooses the move.

        Returns:
            A turn, as a policy would write it.

        """
        raise NotImplementedError

    def unbound(self, state: EpisodeState, role: str, draw: Random) -> str | None:
        """Play well; see `Environment.unbound`.

        Args:
            state: Where the episode stands.
            role: Who is asked.
            draw: Chooses among moves that are equally good.

        Returns:
            Its best move.

        """
        return check_move(self, self.best_move(state, role, draw))

    def has_script(self) -> bool:
        """Tell whether `best_move` plays the policy's role; where not, there are no traces."""
        return True

    def demonstrate_all(
        self, problems: "Sequence[Problem]", draws: Sequence[Random], *, error_rate: float
    ) -> list[Demonstration]:
        """Play an episode of each problem by the best moves, and by random ones now and then.

        Args:
            problems: That this world has posed.
            draws: For each, where all chance in its episode comes from.
            error_rate: Probability that a move of the policy is a random one.

        Returns:
            What was said in each, and what it earned: what it is of the problem alone.

        """
        from posttrain.learning.episodes.script import ScriptedEpisode, play_scripts

        def speaker(draw: Random) -> "Speak":
            def speak(state: EpisodeState, role: str) -> str:
                errs = role == POLICY and draw.random() < error_rate
                move = self.random_move if errs else self.best_move
                return check_move(self, move(state, role, draw))

            return speak

        asked = [
            ScriptedEpisode(problem, speaker(draw), draw.getrandbits(63))
            for problem, draw in zip(problems, draws, strict=True)
        ]
        # Others gain nothing from company: a page would be begun anew for every turn.
        size = 1 if type(self).step_all is Environment.step_all else _TOGETHER
        return [
            _demonstration(each)
            for at in range(0, len(asked), size)
            for each in play_scripts(self, asked[at : at + size], most_turns=_MOST_TURNS)
        ]

    def plan(self, problem: "Problem", draw: Random, *, moves: int) -> str:
        """Tell the first moves of its script; see `Environment.plan`.

        Args:
            problem: One that this world has posed.
            draw: Where all chance comes from.
            moves: At most so many of them.

        Returns:
            A line; empty where no script plays this world, or one move is enough.

        """
        if not self.has_script():
            return ""
        (played,) = self.demonstrate_all([problem], [draw], error_rate=0.0)
        return plan_of(played.said, moves=moves)

    def worlds_played(self) -> tuple[Environment, ...]:
        """Name itself; see `Environment.worlds_played`."""
        return (self,)

    def start(self, problem: "Problem", seed: int) -> Situation:
        """Begin with the problem's facts; see `Environment.start`.

        Args:
            problem: One that this world has posed.
            seed: Of the problem.

        Returns:
            Where the episode stands.

        Raises:
            UserError: The problem is of another world, or of none.

        """
        facts = json.loads(problem.metadata or "{}")
        if self.kind not in facts:
            raise UserError(
                f"environment {self.kind} plays problems that it posed itself, and"
                f" '{problem.prompt[:40]}' of {problem.source} is none; name the world of the"
                " problems' source as the environment of the stage"
            )
        return self.begin(facts[self.kind], seed)


def _demonstration(episode: "Episode") -> Demonstration:
    others = {act.role for acts in episode.log for act in acts} - {POLICY}
    return Demonstration(
        tuple(episode.said(POLICY)),
        sum(episode.earned(POLICY)),
        episode.read,
        {role: tuple(episode.said(role)) for role in sorted(others)},
    )
