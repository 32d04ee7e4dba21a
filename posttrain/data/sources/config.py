"""What the parameters of every stage that reads sources have in common."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Protocol, Self, runtime_checkable

from pydantic import Field, model_validator

from posttrain.data.sources.base import Source
from posttrain.data.sources.registry import SOURCES
from posttrain.data.teachers.base import Teacher
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot


class SourcesConfig(StageConfig):
    """Sources of problems: each has a name of its own, and its local file comes to the stage."""

    sources: tuple[Annotated[Source, InSlot(SOURCES)], ...] = Field(min_length=1)
    """Where problems come from (`posttrain parts source`)."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [source.name for source in self.sources]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two sources are called '{twice}'; give each a name of its own")
        return self

    def check_names(self, where: str) -> None:
        """Refuse a source that cannot be read; see `StageConfig.check_names`."""
        for number, source in enumerate(self.sources):
            try:
                source.check()
            except UserError as error:
                raise UserError(f"{where}.sources.{number}: {error}") from None

    def local_files(self) -> Mapping[str, str]:
        """Paths of the file sources, by source name."""
        paths = {source.name: source.local_path() for source in self.sources}
        return {name: path for name, path in paths.items() if path is not None}


@runtime_checkable
class TellsSolutions(Protocol):
    """A source that may know before anything is made that none of its problems has a solution.

    Apart from `Source`, which is in the key of every stage that scores answers.
    """

    def without_solutions(self, teacher: Teacher, path: Path | None) -> str:
        """Say what would give its problems solutions, where it is certain that none has one.

        Args:
            teacher: What solves those that come without a solution.
            path: Its local file, where it has one.

        Returns:
            What to do, as an imperative; empty where some problem may have a solution.

        """


def remedies_without_solutions(
    sources: Sequence[Source], teacher: Teacher, paths: Mapping[str, Path]
) -> tuple[str, ...]:
    """Say what would give solutions, where it is certain that no source comes with one.

    Args:
        sources: Of a recipe.
        teacher: What solves those that come without a solution.
        paths: Local files by the name of their source.

    Returns:
        What to do, each once; empty where some problem may have a solution.

    """
    found = [
        source.without_solutions(teacher, paths.get(source.name))
        if isinstance(source, TellsSolutions)
        else ""
        for source in sources
    ]
    return tuple(dict.fromkeys(found)) if all(found) else ()
