"""What is done to another source's problems: it is, but for that, the source within."""

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import WithJsonSchema, model_validator

from posttrain.data.sources.base import Source, SourceRequest
from posttrain.data.teachers.base import Teacher
from posttrain.stage.slots import InSlot, Part

if TYPE_CHECKING:
    from pathlib import Path

    from posttrain.data.schemas import Problem

# A schema of sources within sources would have no end.
_ANY_SOURCE = {"type": "object", "required": ["kind"]}


class SourceAround(Source):
    """Does something to the problems of another source; derive from it and define `read`."""

    name: str = ""
    """That of the source within, which its problems carry; it need not be repeated."""
    of: Annotated[Source, InSlot("source"), WithJsonSchema(_ANY_SOURCE)]
    """The source of the problems, with its name, its verifier and its file."""

    @model_validator(mode="after")
    def _named_as_the_one_within(self) -> Self:
        if self.name not in ("", self.of.name):
            raise ValueError(
                f"name is '{self.name}', but the problems carry the name of the source within,"
                f" '{self.of.name}', and their verifier is found by it; leave name out"
            )
        # The config is frozen once it is made.
        object.__setattr__(self, "name", self.of.name)
        return self

    @property
    def verifier(self) -> Part | None:
        """What scores the answers of the source within, where that says so."""
        found = getattr(self.of, "verifier", None)
        return found if isinstance(found, Part) else None

    def local_path(self) -> str | None:
        """Name the file of the source within; see `Source.local_path`."""
        return self.of.local_path()

    def fetched(self) -> str | None:
        """Name what the source within fetches; see `Source.fetched`."""
        return self.of.fetched()

    def poses(self) -> tuple[Part, ...] | None:
        """Name the worlds of the source within; see `Source.poses`."""
        return self.of.poses()

    def reaches(self) -> frozenset[str]:
        """Connect where the source within does; see `Source.reaches`."""
        return self.of.reaches()

    def without_solutions(self, teacher: Teacher, path: "Path | None") -> str:
        """Ask the source within; see `TellsSolutions`."""
        # `TellsSolutions` itself stands where the registry is known, which knows this module.
        within = getattr(self.of, "without_solutions", None)
        return str(within(teacher, path)) if within else ""

    @property
    def only_heldout(self) -> bool:
        """True where all of the source within is held out."""
        return self.of.only_heldout

    def check(self) -> None:
        """Let the source within refuse; see `Source.check`."""
        self.of.check()

    def remark(self, teacher: Teacher) -> str:
        """Say what the source within says; see `Source.remark`."""
        return self.of.remark(teacher)

    def first_problems(self, request: SourceRequest, most: int) -> "list[Problem]":
        """Read those of the source within; see `Source.first_problems`."""
        return self.of.first_problems(request, most)
