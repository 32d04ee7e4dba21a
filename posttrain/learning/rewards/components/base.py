"""What every reward component is: a part that scores the answers of a group."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from posttrain.stage.errors import UserError
from posttrain.stage.hashing import canonical_json
from posttrain.stage.identity import identity
from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rewards.port_models import PortModels
    from posttrain.learning.rewards.port_tables import PortTables
    from posttrain.learning.rewards.score import Score

Verify = Callable[[Sequence[tuple[str, "Problem"]]], list["Score"]]
"""Scores many (text, problem) at once, each by the problem's own verifier; it remembers them."""
FAR = 1e6
"""Stands for no bound where ends are held against each other: more than correctness ever weighs."""
Range = tuple[float, float]
"""The least and the greatest number that something gives."""
WITHIN = frozenset({"turn", "token"})
"""Scopes of components that pay at places within an answer, and not the answer as a whole."""


@dataclass(frozen=True)
class Answers:
    """The answers of one group, all to one problem; the tuples have an entry each, ``[G]``."""

    problem: "Problem"
    texts: tuple[str, ...]
    """What the policy drew; what it read between is left out."""
    lengths: tuple[int, ...]
    """Drawn tokens."""
    truncated: tuple[bool, ...]
    """True where the answer was cut off at the limit of tokens."""
    failed: tuple[bool, ...] = ()
    """True where what answers it broke, so that it is not judged; empty where none did."""
    token_ids: tuple[tuple[int, ...], ...] = ()
    """The tokens of each answer, read and drawn, in order."""
    drawn: tuple[tuple[bool, ...], ...] = ()
    """True at those of them that the policy drew."""
    segments: tuple[tuple[int, ...], ...] = ()
    """Tokens of each sequence of each answer, in order: several where a context was begun afresh.
    Empty where each is one."""
    turns: tuple[tuple[int, ...], ...] = ()
    """Drawn tokens of each turn of each answer, in order; one of all of them for a single turn."""
    earned: tuple[tuple[float, ...], ...] = ()
    """What the environment paid for each turn of each answer, where it says what an episode is
    worth; none of an answer whose verifier does."""
    role: str = "policy"
    """Who gave them, where an environment has several roles."""
    solved: tuple[bool | None, ...] = ()
    """Which answers are right, for a component with `solved` in its NEEDS; None if not judged."""
    logprobs: tuple[tuple[float, ...], ...] = ()
    """Of the drawn tokens of each answer, by what drew them, in nats at the temperature of that."""
    scores: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """What the components gave that this one names in `reads`."""

    def sequences(self, place: int) -> list[range]:
        """Return where each sequence of an answer lies among its tokens, by its place."""
        # What stands in one was drawn behind what stands before it there, and behind nothing else.
        lengths = self.segments[place] if self.segments else (len(self.token_ids[place]),)
        return [range(begin, end) for begin, end in pairwise(accumulate(lengths, initial=0))]

    def read(self, place: int) -> tuple[int, ...]:
        """Return the tokens that stand before the first drawn one of an answer, by its place."""
        return self.token_ids[place][: self.drawn[place].index(True)]


def no_models() -> "PortModels":
    """Return what asks no port, so that torch is not imported for rewards without models."""
    from posttrain.learning.rewards.port_models import PortModels

    return PortModels()


def no_tables() -> "PortTables":
    """Return what knows no table, so that polars is not imported where a recipe is read."""
    from posttrain.learning.rewards.port_tables import PortTables

    return PortTables()


@dataclass(frozen=True)
class Inquiry:
    """What a component may ask while it scores; called with answers, it asks their verifiers."""

    verify: Verify
    step: int = 0
    """0-based step that the answers will be learned from in."""
    state: dict[str, Any] = field(default_factory=dict)
    """What this component remembers from one call to the next: plain values, empty at first. It may
    be changed in place, and is in the checkpoint."""

    models: "PortModels" = field(default_factory=no_models)
    """Models that the stage's ports bring, for a component with `ports`."""
    tables: "PortTables" = field(default_factory=no_tables)
    """Tables that the stage's ports bring, for a component with `ports`."""
    max_tokens: int | None = None
    """Longest completion of the stage, in tokens; None where nobody says."""

    def longest(self, limit: int | None) -> int:
        """Return the limit that a component states, or else that of the stage.

        Args:
            limit: Tokens, or None.

        Raises:
            UserError: Neither states one.

        """
        found = limit or self.max_tokens
        if found is None:
            raise UserError(
                "rl.reward: a component for length needs a limit of tokens; set its `limit`"
            )
        return found

    def __call__(self, answers: Sequence[tuple[str, "Problem"]]) -> list["Score"]:
        """Return the score of each answer by its problem's own verifier."""
        return self.verify(answers)


class Component(Part, Schedulable):
    """One of the numbers that a reward is made of; derive from it and define `score`.

    Its numbers may be schedules of the step, and are numbers where it scores.
    """

    SCOPE: ClassVar[Literal["answer", "group", "turn", "token"]] = "answer"
    """What one number is about; that of a turn is paid at its last token."""
    SAYS_SOLVED: ClassVar[bool] = False
    """True where a score of 1 says that the problem is solved, so that it may do so by default."""
    NEEDS: ClassVar[frozenset[str]] = frozenset()
    """`solved` for a component that must know which answers are right, `tokens` for one that goes
    by the tokens of an answer or their number, and not by its text alone, `logprobs` for one that
    goes by what the policy drew them with, at temperature 1."""
    RANGE: ClassVar[Range] = (0.0, 1.0)
    """The least and the greatest score of an answer; a score beyond them is refused."""

    when: str | None = None
    """The component that must say 1, else this one pays 0; null where it always pays."""

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Score the answers of one group.

        Args:
            group: The answers.
            known: Called with answers, the scores of their verifiers; and what is remembered.

        Returns:
            One number per answer, ``[G]``; None where it could not be judged.

        """
        raise NotImplementedError

    def score_all(
        self, groups: Sequence[Answers], known: Inquiry
    ) -> Sequence[Sequence[float | None]]:
        """Score many groups; define it where asking about all at once is quicker.

        Args:
            groups: P problems, each with its G answers.
            known: Asks a verifier, and remembers what it said.

        Returns:
            Numbers ``[P][G]``, None where an answer could not be judged.

        """
        return [self.score(group, known) for group in groups]

    def score_tokens(
        self,
        groups: Sequence[Answers],  # noqa: ARG002 - see below
        known: Inquiry,  # noqa: ARG002 - see below
    ) -> Sequence[Sequence[Sequence[float] | None]]:
        """Score every drawn token, for a component of scope `token`; its sum is the answer's score.

        Args:
            groups: P problems, each with its G answers.
            known: Asks a verifier, and remembers what it said.

        Returns:
            A number for each drawn token, ``[P][G][T]``; None in place of those of an answer that
            could not be judged.

        """
        raise NotImplementedError

    def score_turns(
        self,
        groups: Sequence[Answers],  # noqa: ARG002 - see below
        known: Inquiry,  # noqa: ARG002 - see below
    ) -> Sequence[Sequence[Sequence[float] | None]]:
        """Score every turn, for a component of scope `turn`; the sum is the answer's score.

        Args:
            groups: P problems, each with its G answers, whose `turns` say where each turn ends.
            known: Asks a verifier, and remembers what it said.

        Returns:
            A number for each turn, ``[P][G][K]``; None in place of those of an answer that could
            not be judged.

        """
        raise NotImplementedError

    def reads(self) -> Sequence[str]:
        """Return the components whose scores it must be given; they are asked before it."""
        return ()

    def judged_by(self, problem: "Problem") -> str:  # noqa: ARG002 - for those that it matters to
        """Name who says so of an answer to a problem: kind, and digest of what it goes by."""
        from posttrain.data.schemas import row_id

        return f"{self.kind}.{row_id(canonical_json(identity(self)))}"

    def ports(self) -> Sequence[str]:
        """Return the ports whose models it asks, such as `reward_models.helpful`."""
        return ()

    def bounds(self, *, solved: bool) -> Range:  # noqa: ARG002 - for those that it matters to
        """Return the least and the greatest score of a right answer, or of a wrong one."""
        return self.RANGE
