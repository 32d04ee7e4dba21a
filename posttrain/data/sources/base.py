"""What a source is: a part that gives problems, on either side of the held-out border."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posttrain.data.contexts import PromptContext
from posttrain.data.teachers.base import Solution, Teacher
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

Side = Literal["train", "heldout"]


@dataclass(frozen=True)
class SourceRequest:
    """What a stage asks a source for.

    Attributes:
        seed: Seed of the stage.
        num_problems: Training problems that a generator is to make.
        num_heldout: Held-out problems that a generator is to make.
        heldout_fraction: Share of a parted file's problems that is held out.
        sides: Prompts of earlier sources, and where they are: each keeps its side.
        path: The source's local file or folder, where it names one.
        scratch: Folder for what a library converts or caches.
        answer_of: Reduces a reference answer to what a verifier compares with.
        metadata_of: Writes the parameters of a verifier as the metadata of its problems.

    """

    seed: int
    num_problems: int
    num_heldout: int
    heldout_fraction: float
    scratch: Path
    sides: Mapping[str, Side] = field(default_factory=dict)
    path: Path | None = None
    answer_of: Callable[[str], str] = str
    metadata_of: Callable[[Any], str] = lambda _verifier: "{}"


@dataclass(frozen=True)
class SourceRows:
    """What a source gave: problems by side, and solutions of those to train on."""

    train: "list[Problem]" = field(default_factory=list)
    heldout: "list[Problem]" = field(default_factory=list)
    solutions: list[Solution] = field(default_factory=list)


class Source(Part):
    """Reads or makes problems, with the solutions that it has."""

    name: str
    """Name of the source, unique in a recipe; its problems carry it."""
    context: PromptContext = PromptContext()
    """System prompt, few-shot rows, and what stands before and behind every prompt of it."""

    def local_path(self) -> str | None:
        """Name the local file or folder that is read, relative to the recipe, if any."""
        return None

    def fetched(self) -> str | None:
        """Name what is fetched from outside, as the schedule watches it, if anything."""
        return None

    def poses(self) -> tuple[Part, ...] | None:
        """Name the worlds that posed its problems.

        Returns:
            Worlds with their settings, none where no world did; None where only rows can tell, as
            those of a file.

        """
        return None if self.local_path() or self.fetched() else ()

    def reaches(self) -> frozenset[str]:
        """Connect to a hub where something is fetched."""
        return frozenset({"hub"} if self.fetched() else ())

    @property
    def only_heldout(self) -> bool:
        """True where all of it is held out; such sources are read first."""
        return False

    def check(self) -> None:
        """Refuse what cannot be read, before anything is made."""

    def remark(self, teacher: Teacher) -> str:
        """Say what somebody should know of its problems, for the plan.

        Args:
            teacher: What solves those that come without a solution.

        Returns:
            A sentence; empty where there is nothing to say.

        """
        return ""

    def first_problems(self, request: SourceRequest, most: int) -> "list[Problem]":  # noqa: ARG002 - as above
        """Read the first problems, for what a plan looks at; none where they are not there yet.

        Args:
            request: As the stage will ask.
            most: How many.

        Returns:
            Problems of either side.

        Raises:
            UserError: A row cannot be used; file and line are named.

        """
        return []

    def in_context(self, rows: SourceRows) -> SourceRows:
        """Put the source's context around all its problems.

        Args:
            rows: As `read` gave them; what a row says of its own context goes first.

        Returns:
            The same rows, with solutions of the problems as they are now.

        """
        if self.context == PromptContext():
            return rows

        def told(problem: "Problem") -> "Problem":
            context = self.context.with_row(PromptContext.read(problem.context))
            return replace(problem, context=context.written())

        return SourceRows(
            [told(problem) for problem in rows.train],
            [told(problem) for problem in rows.heldout],
            [replace(each, problem=told(each.problem)) for each in rows.solutions],
        )

    def read(self, request: SourceRequest) -> SourceRows:
        """Read or make the problems.

        Args:
            request: How many, where from, and what earlier sources have.

        Returns:
            Problems of both sides, and solutions of those to train on, not verified yet.

        Raises:
            UserError: A row cannot be used, or there is none; file and line are named.

        """
        raise NotImplementedError
