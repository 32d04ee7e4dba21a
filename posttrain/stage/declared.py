"""What a stage reads beside its inputs and parameters, as a recipe declares it."""

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from pydantic import field_validator, model_validator

from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of
from posttrain.stage.kernels import PORTABLE, REPEATABLE, THREADS

READS = "reads"
"""Role under which declared files are among the inputs of a stage, as `reads.path`."""

_SET: Mapping[str, str] = {
    **dict.fromkeys(THREADS, "run.threads"),
    **dict.fromkeys(PORTABLE, "run.kernels"),
    **dict.fromkeys(REPEATABLE, "the framework"),
}
"""What sets a variable in every stage's process, whatever it was."""

# One letter is a drive.
_PACKAGE = re.compile(r"[A-Za-z_]\w+(\.[A-Za-z_]\w*)*")

# That of the recipe whose stage this process runs comes last; for all of its threads.
_folders = [Path()]


def read_from(folder: Path) -> None:
    """Let the files that parts name be found in this process: they lie from `folder` on."""
    _folders.append(folder)


def read_path(name: str) -> Path:
    """Find a file that a part names in `read_files`; outside of a stage from the working folder."""
    return _folders[-1] / Path(name).expanduser()


def shipped_path(name: str) -> str:
    """Turn `PACKAGE:PATH`, a file beside a package's modules, into its path; leave others alone.

    What a method or a plug-in ships beside itself is named so, and is found in any project. A part
    that lets its file be named so finds it by `read_path(shipped_path(name))`.

    >>> shipped_path("theirs.csv")
    'theirs.csv'

    Args:
        name: Such as `theirs.csv`, or `posttrain.methods:eval/theirs.csv`.

    Returns:
        A path, at which there may be nothing.

    Raises:
        UserError: There is no such package.

    """
    package, _, path = name.partition(":")
    if not path or not _PACKAGE.fullmatch(package):
        return name
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"{name}: no package is called '{package}'; install what brings it")
    return str(Path(spec.submodule_search_locations[0]) / path)


def how_to_declare(stage: str, what: str, name: str) -> str:
    """Say how a recipe declares a file or a variable for one stage alone.

    >>> how_to_declare("sft", "reads", "words.txt")
    'declare it for this stage in the recipe: sft: {declares: {reads: [words.txt]}}'

    Args:
        stage: Its name.
        what: `reads` or `environment`.
        name: Of the file or the variable.

    Returns:
        A part of a sentence.

    """
    form = f"{stage}: {{declares: {{{what}: [{name}]}}}}"
    return f"declare it for this stage in the recipe: {form}"


class Declared(StageConfig):
    """Files and variables that stages may read beside their inputs; all else is kept from them."""

    reads: tuple[str, ...] = ()
    """Files and folders, from the recipe's folder on; their content counts like that of inputs."""
    environment: tuple[str, ...] = ()
    """Variables of the environment; their values count, by digest."""
    secrets: tuple[str, ...] = ()
    """Variables that are given and count nowhere: keys and tokens, which decide no result."""

    @field_validator("*", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("environment", "secrets")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"'{name}' is no name of a variable; give names, never values")
            if setting := _SET.get(name):
                raise ValueError(f"{name} is set by {setting}, which counts; leave it out here")
        return names

    @model_validator(mode="after")
    def _secrets_do_not_count(self) -> Self:
        if both := sorted(set(self.environment) & set(self.secrets)):
            raise ValueError(
                f"{both[0]} stands in environment and in secrets; a variable counts, or it does not"
            )
        return self

    def joined(self, own: "Declared") -> "Declared":
        """Add what a stage declares for itself; its word on a variable goes before the recipe's.

        Args:
            own: Of the stage.

        Returns:
            Both, each name once.

        """
        environment = [name for name in self.environment if name not in own.secrets]
        secrets = [name for name in self.secrets if name not in own.environment]
        return Declared(
            reads=tuple(dict.fromkeys((*self.reads, *own.reads))),
            environment=tuple(dict.fromkeys((*environment, *own.environment))),
            secrets=tuple(dict.fromkeys((*secrets, *own.secrets))),
        )

    def keyed(self) -> dict[str, str]:
        """Give what counts of the variables: of each the digest of its present value."""
        return {
            f"environment {name}": sha256_of(os.environ[name]) if name in os.environ else "not set"
            for name in self.environment
        }

    def present(self) -> dict[str, str]:
        """Give the values of the variables that are set, secrets among them."""
        names = (*self.environment, *self.secrets)
        return {name: os.environ[name] for name in names if name in os.environ}

    def stated(self) -> Mapping[str, list[str]]:
        """Give what is declared as a recipe states it, without what is empty."""
        return {name: list(value) for name, value in self if value}
