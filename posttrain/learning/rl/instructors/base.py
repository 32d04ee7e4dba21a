"""The slot of the instructors: what a part of it implements."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.learning.episodes.players.base import PlayBench


class InstructedAttempts(NamedTuple):
    """What became of a problem behind an instruction; the tuples have one entry per rollout."""

    instruction: str
    problem: str
    """Its prompt, without the instruction."""
    texts: tuple[str, ...]
    """What the policy said, a line a turn."""
    rewards: tuple[float | None, ...]
    """What each earned; None where it could not be judged."""
    solved: tuple[bool | None, ...]
    """Whether it counts as right; None where it could not be judged."""


class TryOut(Protocol):
    """Lets the present policy attempt problems behind an instruction, and learns nothing of it."""

    def __call__(self, instruction: str, *, count: int, seed: int) -> list[float]:
        """Attempt some problems once each.

        Args:
            instruction: What stands before them.
            count: How many; equal seeds choose the same problems.
            seed: Of the choice and the draws.

        Returns:
            The rewards of those that could be judged; none where it leaves no room to answer.

        """
        ...


@dataclass(frozen=True)
class InstructorBench:
    """What an instructor works with for the whole run."""

    table: "PlayBench"
    """With what a player sits down who writes instructions."""
    try_out: TryOut
    seed: int
    """Seed of the run."""


class InstructionStream:
    """A started instructor: it says what stands before problems, and hears what became of them.

    Its state is part of the checkpoint. What it says may depend on the seed, the step and that
    state alone, and what it writes on the present policy too.
    """

    @abstractmethod
    def choose(self, problems: Sequence[str], *, step: int) -> Sequence[str]:
        """Choose an instruction for each problem of one round of sampling.

        Args:
            problems: Their ids; all rollouts of one have the same instruction.
            step: 0-based step that the rollouts will be learned from in.

        Returns:
            One text each, none of them empty.

        """
        raise NotImplementedError

    def renew(self, *, step: int) -> None:
        """Change what there is to choose from, before the problems of a step are drawn."""

    def observe(self, attempts: Sequence[InstructedAttempts]) -> None:
        """Take in all groups of one step."""

    def best(self) -> str:
        """Return the one that the policy is to be used with; empty where there is none such."""
        return ""

    def told(self) -> list[dict[str, Any]]:
        """Return what there is to choose from, as plain values, for the stage's report."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as tensors and plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""

    def metrics(self) -> dict[str, float]:
        """Figures after the last observed step, by the names in the part's `metrics`."""
        return {}


class Instructor(Part):
    """Which instruction stands before a problem, as its system prompt."""

    METRICS: ClassVar[Mapping[str, str]] = {}
    """What its streams measure, with a description; in the curve as ``rl/instructions_<name>``."""

    @property
    def players_asked(self) -> Mapping[str, str]:
        """The ports, such as `players.start`, that it asks for checkpoints -> who asks."""
        return {}

    def begins_with(self) -> tuple[str, ...]:
        """Name the instructions that are there from the beginning, for what is refused of them."""
        return ()

    def start(self, bench: InstructorBench) -> InstructionStream:
        """Begin a run.

        Args:
            bench: Who writes and who tries what is written.

        Returns:
            What chooses, with its state.

        """
        raise NotImplementedError
