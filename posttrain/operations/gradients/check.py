"""A method's gradients, section by section, against the formula that stands beside its file."""

import importlib.util
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from posttrain.methods.find import FoundMethod, every_method
from posttrain.operations.gradients.compare import GradientErrors
from posttrain.operations.gradients.pairs import pair_errors
from posttrain.operations.gradients.rollouts import rl_errors
from posttrain.operations.tiny_world import TinyWorld
from posttrain.pipeline.check_code import FORMULAS
from posttrain.pipeline.recipe_method import task_parameters
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, first_line, shown

_COMPARED: Mapping[str, Callable[..., GradientErrors]] = {
    "rl": rl_errors,
    "coevolve": rl_errors,
    "preference": pair_errors,
}
"""Sections whose stages can be looked at."""


@dataclass(frozen=True)
class FoundFormula:
    """The formula that a section of a method is held against."""

    section: str
    of: str
    """The method whose formula it is: this one, or one whose algorithm is the same."""
    loss: Callable[[Any], torch.Tensor]


@dataclass(frozen=True)
class MethodGradients:
    """How far the stage's gradients are from the formula of one section of a method."""

    method: str
    section: str
    formula: str | None
    """The method whose formula it is; None where there is none, and nothing was compared."""
    errors: tuple[GradientErrors, ...] = ()
    """With weights in float64 and in float32."""

    @property
    def agree(self) -> bool:
        """True where they were compared, and are the same."""
        return bool(self.errors) and all(each.agree for each in self.errors)

    @property
    def differ(self) -> bool:
        """True where they were compared, and are not the same."""
        return bool(self.errors) and not self.agree


def method_gradients(found: FoundMethod, world: TinyWorld) -> list[MethodGradients]:
    """Compare the gradients of a method with those of its formulas, in two number formats.

    Args:
        found: The method.
        world: Where it runs.

    Returns:
        How far they are apart in each section that can be compared, or that there is nothing to
        compare with; empty where the method sets no such section.

    Raises:
        NotInTinyWorldError: It reads an artifact of a kind that the world has not.
        UserError: The method cannot be run, or its formula cannot be imported.

    """
    compared = []
    world = world.with_sections(found.method.sets)
    for section in compared_sections(found):
        formula = formula_of(found, section, world)
        if formula is None:
            compared.append(MethodGradients(found.method.name, section, None))
            continue
        errors = tuple(
            gradient_errors(found, formula, world, dtype=dtype)
            for dtype in (torch.float64, torch.float32)
        )
        compared.append(MethodGradients(found.method.name, section, formula.of, errors))
    return compared


def compared_sections(found: FoundMethod) -> list[str]:
    """Name the sections of a method whose gradients can be compared, in its order."""
    return [section for section in found.method.sets if section in _COMPARED]


def formula_of(found: FoundMethod, section: str, world: TinyWorld) -> FoundFormula | None:
    """Find the formula of a section of a method.

    Args:
        found: The method.
        section: One of `compared_sections`.
        world: Whose stages tell what an algorithm comes to.

    Returns:
        Its own; else that of a method whose algorithm is the same; None where there is neither, and
        where it adds losses to the algorithm's, of which another's formula says nothing.

    Raises:
        UserError: A file of formulas cannot be imported.

    """
    if own := _own(found, section):
        return FoundFormula(section, found.method.name, own)
    if _adds_losses(found, section):
        return None
    algorithm = _algorithm(found, section, world)
    for name, other in every_method().items():
        if section not in other.method.sets or _algorithm(other, section, world) != algorithm:
            continue
        if loss := _own(other, section):
            return FoundFormula(section, name, loss)
    return None


def gradient_errors(
    found: FoundMethod, formula: FoundFormula, world: TinyWorld, *, dtype: torch.dtype
) -> GradientErrors:
    """Run two updates of a method, and compare the stage's gradients with its formula's.

    Args:
        found: The method.
        formula: Its formula.
        world: Where it runs.
        dtype: Number format of the weights.

    Returns:
        The largest errors of the two updates.

    Raises:
        NotInTinyWorldError: It reads an artifact of a kind that the world has not.
        UserError: The method cannot be run.

    """
    section = formula.section
    # A folder of its own: in that of an earlier run a stage would go on from its checkpoint.
    folder = Path(tempfile.mkdtemp(prefix=found.method.name, dir=world.folder))
    said = found.method.sets[section] or {}
    given = (world.tasks[section], world.inputs_of(section, said))
    return _COMPARED[section](formula.loss, task_parameters(said), given, folder, dtype=dtype)


def _own(found: FoundMethod, section: str) -> Callable[[Any], torch.Tensor] | None:
    """The function of a method's name; of one with several sections each has its own."""
    name = found.method.name
    if len(compared_sections(found)) > 1:
        name = f"{name}_{section}"
    path = found.path.parent / FORMULAS
    if not path.is_file():
        return None
    state = path.stat()
    loss = getattr(_module(path, state.st_mtime_ns, state.st_size), name, None)
    return _told_of(loss, path) if callable(loss) else None


def _told_of(loss: Callable[[Any], torch.Tensor], path: Path) -> Callable[[Any], torch.Tensor]:
    """Let a formula's own mistake be said with its line, and not with those of this program."""

    @wraps(loss)
    def told(rows: Any) -> torch.Tensor:
        try:
            return loss(rows)
        except UserError:
            raise
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [each.lineno for each in frames if each.filename == str(path)]
            line = f", line {own[-1]}" if own else ""
            raise UserError(
                f"{shown(path)}{line}: the formula {loss.__name__} fails:"
                f" {type(error).__name__}: {first_line(error)}"
            ) from error

    return told


@lru_cache(maxsize=256)
def _module(path: Path, _mtime: int, _size: int) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"formulas of {path.parent}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(
            f"{shown(path)}: the formulas cannot be imported: {first_line(error)}"
        ) from error
    return module


def _adds_losses(found: FoundMethod, section: str) -> bool:
    """Whether a section has losses of tables beside that of its algorithm."""
    said = found.method.sets[section] or {}
    return bool((said.get("updates") or {}).get("rehearsals"))


def _algorithm(found: FoundMethod, section: str, world: TinyWorld) -> StageConfig:
    said = found.method.sets[section] or {}
    # What plays gives what some algorithms need.
    values = {name: said[name] for name in ("algorithm", "producer", "engine") if said.get(name)}
    config = world.tasks[section].config.parse(values, where=section)
    algorithm: StageConfig = getattr(config, "algorithm")  # noqa: B009
    return algorithm
