"""A method's gradients, section by section, against the formula that stands beside its file."""

import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from posttrain.methods.find import FoundMethod, every_method
from posttrain.operations.gradients.compare import GradientErrors
from posttrain.operations.gradients.pairs import pair_errors
from posttrain.operations.gradients.rollouts import rl_errors
from posttrain.operations.method_check import TinyWorld
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, first_line, shown

FORMULAS = "formulas.py"
"""In the folder that a method's file is in: a function of its name, the loss by its paper."""

_COMPARED: Mapping[str, Callable[..., GradientErrors]] = {
    "rl": rl_errors,
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
    """How far the stage's gradients are from a method's formula."""

    method: str
    formula: str | None
    """The method whose formula it is; None where there is none, and nothing was compared."""
    section: str | None
    """That was looked at; None where the method sets none that can be."""
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


def method_gradients(found: FoundMethod, world: TinyWorld) -> MethodGradients:
    """Compare the gradients of a method with those of its formula, in two number formats.

    Args:
        found: The method.
        world: Where it runs.

    Returns:
        How far they are apart, or that there is nothing to compare with.

    Raises:
        UserError: The method cannot be run, or its formula cannot be imported.

    """
    formula = formula_of(found, world)
    if formula is None:
        return MethodGradients(found.method.name, None, compared_section(found))
    errors = tuple(
        gradient_errors(found, formula, world, dtype=dtype)
        for dtype in (torch.float64, torch.float32)
    )
    return MethodGradients(found.method.name, formula.of, formula.section, errors)


def compared_section(found: FoundMethod) -> str | None:
    """Name the section of a method whose gradients can be compared; None where it sets none."""
    # What reads further models, such as a reward model, has none in a tiny world.
    return next(
        (
            section
            for section, said in found.method.sets.items()
            if section in _COMPARED and "inputs" not in (said or {})
        ),
        None,
    )


def formula_of(found: FoundMethod, world: TinyWorld) -> FoundFormula | None:
    """Find the formula of a method.

    Args:
        found: The method.
        world: Whose stages tell what an algorithm comes to.

    Returns:
        Its own; else that of a method whose algorithm is the same; None where there is neither.

    Raises:
        UserError: A file of formulas cannot be imported.

    """
    section = compared_section(found)
    if section is None:
        return None
    if own := _own(found):
        return FoundFormula(section, found.method.name, own)
    algorithm = _algorithm(found, section, world)
    for name, other in every_method().items():
        if compared_section(other) != section or _algorithm(other, section, world) != algorithm:
            continue
        if loss := _own(other):
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
        UserError: The method cannot be run.

    """
    section = formula.section
    # A folder of its own: in that of an earlier run a stage would go on from its checkpoint.
    folder = Path(tempfile.mkdtemp(prefix=found.method.name, dir=world.folder))
    given = (world.tasks[section], world.inputs[section])
    said = found.method.sets[section] or {}
    return _COMPARED[section](formula.loss, said, given, folder, dtype=dtype)


def _own(found: FoundMethod) -> Callable[[Any], torch.Tensor] | None:
    path = found.path.parent / FORMULAS
    if not path.is_file():
        return None
    state = path.stat()
    loss = getattr(_module(path, state.st_mtime_ns, state.st_size), found.method.name, None)
    return loss if callable(loss) else None


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


def _algorithm(found: FoundMethod, section: str, world: TinyWorld) -> StageConfig:
    said = (found.method.sets[section] or {}).get("algorithm") or {}
    config = world.tasks[section].config.parse({"algorithm": said}, where=section)
    algorithm: StageConfig = getattr(config, "algorithm")  # noqa: B009
    return algorithm
