"""What a name stands for in `posttrain method show` and `diff`: sections of a method, resolved."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.identity import (
    Identified,
    canonical,
    digest,
    flat,
    name_by_digest,
    resolved,
)
from posttrain.learning.algorithms.preference import PreferenceAlgorithm
from posttrain.learning.algorithms.presets import PREFERENCE_PRESETS, PRESETS
from posttrain.methods.find import find_method, has_method, readable_methods
from posttrain.methods.method import Method
from posttrain.methods.systems import published_systems
from posttrain.pipeline.recipe import load_recipe
from posttrain.pipeline.recipe_method import sections_of_method
from posttrain.pipeline.recipe_schema import stages_of_flow
from posttrain.pipeline.workspace import Workspace
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.hashing import canonical_json, sha256_of

_FLOW = "flows.post_training"

_BEFORE: Mapping[str, str] = {
    "dapo": "rollouts that were cut off bore no loss",
    "cispo": "there was no penalty for length",
    "nsr": "there was no ratio, and the mean was over the tokens of right answers too",
    "w_reinforce": "there was no ratio",
}
"""What else the algorithm of a name was in version 0.1, where it was another."""


@dataclass(frozen=True)
class ShownMethod:
    """What a method or a recipe sets, resolved, and what its file says of it."""

    name: str
    sections: Mapping[str, StageConfig]
    defaults: Mapping[str, StageConfig]
    """The same sections where nothing is set."""
    method: Method | None = None
    remark: str = ""
    """What the name that was asked for stands for, where that is not quite this."""

    @property
    def algorithms(self) -> dict[str, Algorithm | PreferenceAlgorithm]:
        """The algorithms by their place, such as `rl.algorithm`."""
        return {
            f"{section}.{field}": value
            for section, config in self.sections.items()
            for field, value in config
            if isinstance(value, Algorithm | PreferenceAlgorithm)
        }

    @property
    def digest(self) -> str:
        """SHA-256 of all that it says of the mathematics, section by section."""
        said = {
            name: digest(each) if isinstance(each, Identified) else each.keyed()
            for name, each in self.sections.items()
        }
        return sha256_of(canonical_json(said))

    def switches(self, *, beside: "ShownMethod | None" = None) -> dict[str, Any]:
        """Every field by its place in a recipe, of the sections that another one has too."""
        sections = self.sections.keys() & beside.sections.keys() if beside else self.sections
        return {
            f"{name}.{path}": value
            for name in self.sections
            if name in sections
            for path, value in flat(self.sections[name]).items()
        }

    def told_switches(self) -> dict[str, tuple[Any, Any]]:
        """Every switch of the algorithms, and what else differs from the default beside it."""
        default = {
            f"{name}.{path}": value
            for name, config in self.defaults.items()
            for path, value in flat(config).items()
        }
        whole = tuple(f"{place}." for place in self.algorithms)
        return {
            path: (value, default.get(path))
            for path, value in self.switches().items()
            if path.startswith(whole) or value != default.get(path)
        }

    def as_object(self) -> dict[str, object]:
        """What `-o json` prints; `canonical` is the text that is hashed."""
        found: dict[str, object] = {"name": self.name}
        for place, algorithm in self.algorithms.items():
            found[place] = {
                "digest": digest(algorithm),
                "canonical": canonical(algorithm),
                "switches": resolved(algorithm),
                "stage": digest(of) if isinstance(of := self._stage(place), Identified) else None,
            }
        said = self.method.model_dump(mode="json", by_alias=True) if self.method else {}
        return found | said | ({"remark": self.remark} if self.remark else {})

    def _stage(self, place: str) -> StageConfig:
        return self.sections[place.partition(".")[0]]


def shown_method(name: str, root: Path, *, beside: Iterable[str] = ()) -> ShownMethod:
    """Find what a name stands for.

    Args:
        name: A method, a published system, a digest of an algorithm, or the path of a recipe.
        root: The project's root.
        beside: Names of what else could have been meant, such as arenas.

    Returns:
        What it sets, resolved.

    Raises:
        UserError: There is none of that name.

    """
    if not name:
        raise UserError("the method's name is empty; posttrain method list names them all")
    if has_method(name):
        return _of_method(name, root)
    # What is wrong in the file of another method says nothing of this name.
    methods, _ = readable_methods()
    algorithms = _algorithms(methods)
    if known := name_by_digest(name, algorithms):
        of_today = digest(algorithms[known]).startswith(name)
        return replace(_of_method(known, root), remark="" if of_today else _before(known, name))
    if of_system := [each for each, found in methods.items() if found.method.system == name]:
        return _of_method(of_system[0], root)
    path = Path(name)
    if path.exists():
        return _of_recipe(path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        raise UserError(f"there is no recipe at {name}; name one, or a method")
    systems = [each.name for each in published_systems()]
    if name in systems:
        raise UserError(f"the system {name} has no method's file yet; see posttrain method list")
    hint = nearest(name, [*methods, *systems, *beside]) or "; posttrain method list names them all"
    raise UserError(f"there is no method '{name}'{hint}")


def _before(known: str, name: str) -> str:
    if known not in _BEFORE:
        return ""
    return (
        f"{name[:12]} is {known} of version 0.1, where {_BEFORE[known]}; this is {known} of today"
    )


def _algorithms(names: Iterable[str]) -> dict[str, Identified]:
    """The algorithms of methods by name, where nothing is wrong with them."""
    found: dict[str, Identified] = {}
    for name in names:
        for presets in (PRESETS, PREFERENCE_PRESETS):
            with suppress(UserError):
                if name in presets:
                    found[name] = presets[name].algorithm
    return found


def _of_method(name: str, root: Path) -> ShownMethod:
    method = find_method(name).method
    tasks = stages_of_flow(_FLOW, root)
    sections = sections_of_method(method, tasks)
    defaults = {section: tasks[section].config() for section in sections}
    return ShownMethod(name, sections, defaults, method)


def _of_recipe(path: Path) -> ShownMethod:
    recipe = load_recipe(path)
    stages = recipe.resolve(Workspace.of(recipe).root).stages
    whole = ShownMethod(recipe.name, {name: stage.config for name, stage in stages.items()}, {})
    learning = {place.partition(".")[0] for place in whole.algorithms}
    if not learning:
        raise UserError(f"{path}: no stage of this recipe has an algorithm; name another recipe")
    sections = {name: whole.sections[name] for name in whole.sections if name in learning}
    defaults = {name: stages[name].task.config() for name in sections}
    return ShownMethod(recipe.name, sections, defaults)
