"""What a plan says of a recipe's profile: which, why, what it set, and which values are unusual."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from posttrain.methods.lay import laid_over
from posttrain.pipeline.profile import has_critic, trains_adapters
from posttrain.pipeline.profile_values import USUAL, UsualRange
from posttrain.pipeline.recipe_values import RecipeValues
from posttrain.stage.spec import Dag, Stage

_ROUND = re.compile(r"(.+)_[1-9][0-9]*")
_ORDER = 10
"""How many times beyond what the sources have a value is remarked on."""


def notes_on_profile(recipe: RecipeValues, dag: Dag) -> Iterator[str]:
    """Say which profile holds, and which values are unusual for a model of its size.

    Args:
        recipe: Its profile was chosen as it was read.
        dag: Its stages.

    Yields:
        Sentences; none where nothing was to choose.

    """
    profile = recipe.profile
    if profile.why:
        yield f"profile {profile.name}: {profile.why}{_shown(recipe, dag)}"
    for stage in dag.stages.values() if profile.has_real_model else ():
        yield from _unusual(stage)


def _shown(recipe: RecipeValues, dag: Dag) -> str:
    """Where to read what the profile set, or that it set nothing."""
    if recipe.profile.name != "real":
        return ""
    if not any(set_by_profile(recipe, dag)):
        return "; the recipe states all that it would set"
    return "; posttrain plan -v lists what it sets"


def set_by_profile(recipe: RecipeValues, dag: Dag) -> Iterator[str]:
    """Say of each stage what its profile set.

    Args:
        recipe: As for `notes_on_profile`.
        dag: Its stages.

    Yields:
        A sentence a stage; none for one of which it sets nothing, or all of which was said.

    """
    on_gpu = recipe.run.device == "cuda"
    for name, stage in dag.stages.items():
        said = _said_of(recipe, name)
        sets = recipe.profile.sets_for(stage.task.package, said, on_gpu=on_gpu)
        laid = dict(_values_in(laid_over(sets, said)))
        stated = dict(_values_in(said))
        own = {
            path: value
            for path, value in _values_in(sets)
            if path not in stated and laid.get(path) == value
        }
        if own:
            listed = ", ".join(f"{path} {value}" for path, value in own.items())
            yield f"{name}: profile {recipe.profile.name} sets {listed}"


def _said_of(recipe: RecipeValues, name: str) -> dict[str, Any]:
    """What recipe and method say of a stage, of one in rounds also for all rounds."""
    stem = _ROUND.fullmatch(name)
    said: dict[str, Any] = {}
    for section in (*((stem[1],) if stem else ()), name):
        for values in (recipe.of_method, recipe.sections):
            said = laid_over(said, values.get(section, {}))
    return said


def _values_in(section: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _values_in(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _unusual(stage: Stage) -> Iterator[str]:
    """Values an order of magnitude beyond all that the sources have."""
    usual = USUAL.get(stage.task.package)
    if usual is None:
        return
    values = stage.config.model_dump(mode="json")
    adapters = trains_adapters(values)
    stated = dict(_values_in(values if has_critic(values) else {**values, "critic": {}}))
    for path, (least, most) in (usual.with_lora if adapters else usual.full).items():
        # A number that is a schedule has no one value.
        value = stated.get(path)
        if value is not None and not least / _ORDER < value < most * _ORDER:
            yield _told(f"{stage.name}.{path}", value, (least, most), adapters=adapters)


def _told(where: str, value: float, usual: UsualRange, *, adapters: bool) -> str:
    least, most = usual
    span = f"{least:g}" if least == most else f"{least:g} to {most:g}"
    what = "adapters on a model" if adapters else "all weights of a model"
    return (
        f"{where} is {value:g}; usual for {what} of this size is {span}: correct it, or leave it"
        " out for that of profile: real"
    )
