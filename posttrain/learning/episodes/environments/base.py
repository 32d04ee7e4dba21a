"""The slot of the environments: what a part of it implements.

An environment holds no state. What it knows of an episode is a plain value that goes in and comes
out, so that an episode can be kept, gone on with, and played again from what was said in it.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from random import Random

    from posttrain.data.schemas import Problem

POLICY = "policy"
"""The role that is trained, and the origin of tokens that it drew itself."""

EpisodeState = Mapping[str, Any]
"""What an environment knows of an episode: JSON values. A sandbox or a page is named by an id."""


def role_of(name: str, known: Sequence[str]) -> str | None:
    """Return which of some roles one is: itself, or what stands before its colon.

    >>> role_of("solver:2", ["policy", "solver"]), role_of("user", ["policy"])
    ('solver', None)

    Args:
        name: As an environment asks it.
        known: As a recipe names them.

    """
    return next((each for each in (name, name.partition(":")[0]) if each in known), None)


class Told(NamedTuple):
    """What a role is told: `Told("user", "Guess again.")`."""

    author: str
    """`user`, or `tool:NAME`."""
    text: str


class Ask(NamedTuple):
    """A role is to speak."""

    role: str
    new: tuple[Told, ...] = ()
    """What it has not read yet. Where a role is asked first, nothing: it reads the problem's
    prompt; or what it reads in place of that, as one message of a user."""


class Act(NamedTuple):
    """What a role said."""

    role: str
    text: str
    """What it drew, as text: for the environment's eyes. Tokens are kept as they were drawn."""
    cut: bool = False
    """True where it met the limit of tokens or the end of the context, and may not be done."""


class Situation(NamedTuple):
    """Where an episode stands."""

    state: EpisodeState
    asks: tuple[Ask, ...] = ()
    """Who is to speak, at most one ask per role; none where the episode is over."""
    earned: Mapping[str, float] = {}
    """Role -> what its last act earned, if not 0. Where the problem's verifier is `played`,
    the sum over an episode says how good it is, from 0 to 1, which is solved. An environment that
    pays and names no `key` says 0 too: an only act of which nothing is told another part judges."""
    key: str = ""
    """Equal keys, equal situations: acts from one are compared with each other by `like: state`.
    Empty where the environment names none, which no world may."""
    facts: Mapping[str, float] = {}
    """What is counted of the step, such as `tool_errors`; never the time, and never paid."""
    failed: str = ""
    """Why the environment broke: such an episode is neither right nor wrong."""
    read: tuple[str, ...] = ()
    """What the step showed of documents, by the ids of their rows: `FILE:LINE` of a file,
    `PROBLEM:N` of the n-th of a problem's own `passages`. They are parents of the episode's rows.
    """


class Said(NamedTuple):
    """What was said in one episode and waits for an answer: the arguments of `Environment.step`."""

    state: EpisodeState
    acts: Sequence[Act]
    seed: int


class Environment(Part):
    """What answers a policy; derive from it, and define `start` and `step`.

    Equal problem, seed and acts must give equal situations: nothing may be drawn, or timed, but by
    the seed. A state is never changed in place.
    """

    ROLES: ClassVar[frozenset[str]] = frozenset()
    """The roles that it may ask beside the policy, by what stands before a colon in their names.
    Recipes may say of these alone who plays them."""
    SET_BY_STAGES: ClassVar[frozenset[str]] = frozenset()
    """Settings of a world that a stage may have otherwise than the problems bring along."""
    EXACT: ClassVar[bool] = True
    """False for one that a clock or a network has a say in: its episodes are replayed from rows to
    the same bits, but what was said does not stand for them: `retrace` refuses it."""

    JUDGES: ClassVar[bool] = False
    """True for one that says how good an episode is: what it pays adds up to 0 to 1, and all its
    situations have keys."""
    HOLDS: ClassVar[bool] = False
    """True where a state names what is held open beside it, such as a session with a server: one
    episode of this process alone can go on with it, so none branches off there or is carried over.
    """

    def start(self, problem: "Problem", seed: int) -> Situation:
        """Begin an episode.

        Args:
            problem: What it is about; the first that a role reads is its prompt.
            seed: Of this problem: all episodes of a group begin alike, each from a call of its own.

        Returns:
            Where the episode stands, with who speaks first.

        """
        raise NotImplementedError

    @abstractmethod
    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:
        """Answer what was said.

        Args:
            state: Of the situation that asked.
            acts: One per ask, in the order of the asks.
            seed: Of this episode and turn.

        Returns:
            Where the episode stands now.

        """
        raise NotImplementedError

    def step_all(self, turns: Sequence[Said]) -> list[Situation]:
        """Answer what was said in several episodes, side by side where an environment waits.

        Args:
            turns: What was said in each.

        Returns:
            Where each stands now, in their order: what `step` gives of it alone.

        """
        return [self.step(*turn) for turn in turns]

    def unbound(self, state: EpisodeState, role: str, draw: "Random") -> str | None:  # noqa: ARG002
        """Say what a role says that nobody plays: those beside the policy may have a script.

        Args:
            state: Where the episode stands.
            role: Who is asked.
            draw: Where all chance comes from.

        Returns:
            What it says; None where the environment has no script for it.

        """
        return None

    def plan(self, problem: "Problem", draw: "Random", *, moves: int) -> str:  # noqa: ARG002
        """Tell what somebody does first who knows how a problem is solved, as guidance.

        Args:
            problem: What it is about.
            draw: Where all chance comes from.
            moves: At most so many of the first moves; never the last.

        Returns:
            A text; empty where the environment knows nothing of the kind.

        """
        return ""

    def roles_asked(self) -> frozenset[str]:
        """Name the roles that it may ask beside the policy, where its settings decide on them."""
        return self.ROLES

    def declared_role(self, name: str) -> str | None:
        """Say which of its roles, the policy among them, goes by a name; None where none does."""
        return role_of(name, (POLICY, *sorted(self.roles_asked())))

    def close(self, state: EpisodeState) -> None:
        """Free what the last state names, such as a sandbox; called once, however it ended."""

    def remarks(self) -> tuple[str, ...]:
        """Say that episodes cannot be played again where they cannot; see `StageConfig.remarks`."""
        if self.EXACT:
            return ()
        return (
            f"environment {self.kind}: what it answers may hang on a clock or a network; only"
            " replay from stored rows is exact, and episodes that are played again may go"
            " otherwise",
        )

    def worlds_played(self) -> tuple["Environment", ...]:
        """Name the worlds whose problems it plays, which they posed themselves; mostly none."""
        return ()

    def authors(self) -> tuple[str, ...]:
        """Name who speaks to the roles, as chat templates call them: `user`, `tool`."""
        return ("user",)
