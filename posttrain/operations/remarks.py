"""What somebody should know of a stage's values though they may well be meant."""

from collections.abc import Iterator, Mapping
from typing import Any

from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.presets import PRESETS
from posttrain.methods.find import find_method, has_method, named_method, readable_methods
from posttrain.stage.config import StageConfig, configs_in
from posttrain.stage.errors import UserError


def remarks_on_values(config: StageConfig) -> Iterator[str]:
    """Say what a stage's config, and each within it, remarks; and what else is to be known of RL.

    The latter is in no key of a stage: that a method is not whole hangs on the files of all.

    Args:
        config: Of the stage.

    Yields:
        Sentences.

    """
    for each in configs_in(config):
        yield from each.remarks()
        if isinstance(algorithm := getattr(each, "algorithm", None), Algorithm):
            values = each.model_dump(mode="json")
            yield from _notes_on_methods(algorithm, values)
            yield from _note_on_signal(values)


def _note_on_signal(values: Mapping[str, Any]) -> Iterator[str]:
    """Say where groups of one outcome teach nevertheless; values are of a section `rl`."""
    without_baseline = values["algorithm"]["advantage"].get("baseline") == "none"
    if without_baseline and values.get("draw", {}).get("train_on") == "signal":
        yield (
            "draw.train_on signal leaves out groups whose advantages are all 0, and without a"
            " baseline those of a group that is all right are not, nor with an offset those of one"
            " that is all wrong; draw.select {kind: solved_band, least: 0.001, most: 0.999} rejects"
            " both"
        )


def _notes_on_methods(algorithm: Algorithm, values: Mapping[str, Any]) -> Iterator[str]:
    """Say where an algorithm is that of a method, and the method's other settings are not there.

    Args:
        algorithm: Of a section `rl`.
        values: All fields of the section as plain values.

    Yields:
        A sentence on the first such method; none where one of them is there with all of it, nor
        where the recipe names a method that says an algorithm: what lies over that is meant.

    """
    if has_method(named := named_method()):
        meant = find_method(named).method
        if meant.section("rl", "algorithm") or meant.section("coevolve", "algorithm"):
            return
    found: dict[str, list[str]] = {}
    for name, each in readable_methods()[0].items():
        said = dict(each.method.section("rl") or {})
        if said.pop("algorithm", None) is None or not _is_that_of(name, algorithm):
            continue
        # What is no field, such as `inputs`, is no value of a stage.
        fields = {field: value for field, value in said.items() if field in values}
        found[name] = [*_lacking(fields, values, "")]
    if found and all(found.values()):
        name, lacking = next(iter(found.items()))
        others = f" (as that of {', '.join([*found][1:])})" if len(found) > 1 else ""
        yield (
            f"the algorithm is that of {name}{others}, but the method of this name has"
            f" {', '.join(lacking)}; say method: {name} at the top of the recipe for all of it"
        )


def _is_that_of(name: str, algorithm: Algorithm) -> bool:
    try:
        return PRESETS[name].algorithm == algorithm
    except UserError:
        # What is wrong in its file says nothing of this one.
        return False


def _lacking(wanted: Mapping[str, Any], values: Any, before: str) -> Iterator[str]:
    """Name each setting of a method that values do not have, with what it is there."""
    for name, value in wanted.items():
        given = values.get(name) if isinstance(values, Mapping) else None
        if isinstance(value, Mapping) and value:
            yield from _lacking(value, given, f"{before}{name}.")
        elif not _has(given, value):
            yield f"{before}{name} {value}"


def _has(given: Any, wanted: Any) -> bool:
    """Tell whether a value is what was written, which of a part may be its kind alone."""
    if isinstance(given, Mapping) and isinstance(wanted, str):
        return given.get("kind") == wanted
    if isinstance(given, list) and isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(_has, given, wanted))
    if isinstance(given, Mapping) and isinstance(wanted, Mapping):
        return not any(_lacking(wanted, given, ""))
    return bool(given == wanted)
