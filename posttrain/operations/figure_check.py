"""What a method's evaluation or diagnosis says of a trained policy, and of one that was not.

Nothing is learned in these sections, so that they have no weights to compare. An evaluation acts
where its figures are others than those of the stage's defaults. A diagnostic acts where it tells
what was trained from what was not: the same one looks at a policy after some steps, and at one
whose learning rate was too small to move it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from posttrain.methods.lay import laid_over
from posttrain.operations.stage_alone import run_alone
from posttrain.operations.tiny_world import TinyWorld
from posttrain.stage.errors import UserError

_STEPS = 6
_STILL: Mapping[str, Any] = {"optimization": {"learning_rate": 1e-8}}
# For diagnostics that read the divergence; a weight this small moves nothing.
_MEASURED: Mapping[str, Any] = {"algorithm": {"regularizers": {"kl": {"coefficient": 1e-9}}}}
_EVALUATED = "without it {:.0%} of the evaluation's figures are others"
_DIAGNOSED = "where nothing was trained {:.0%} of its figures are others"

FigureChange = tuple[str, str, float | None, str]
"""Section, switch (empty for all of it), share of figures that are others, and what that says."""


def figure_changes(
    sets: Mapping[str, Mapping[str, Any] | None],
    world: TinyWorld,
    begins: Callable[[str], None],
) -> Iterator[FigureChange]:
    """Compare the figures of sections that train nothing.

    Args:
        sets: All that a method sets.
        world: Where it runs, with the method's own sections.
        begins: Told what runs next, in words.

    Yields:
        Of an evaluation, the change of all together, then of each switch; of a diagnosis, that of
        the diagnostic that tells least, then of each.

    Raises:
        UserError: The evaluation or the diagnosis cannot be made.

    """
    if sets.get("evaluate"):
        yield from _of_evaluation(sets["evaluate"] or {}, sets, world, begins)
    if sets.get("diagnose"):
        yield from _of_diagnosis(sets["diagnose"] or {}, sets, world, begins)


def _of_evaluation(
    said: Mapping[str, Any],
    sets: Mapping[str, Any],
    world: TinyWorld,
    begins: Callable[[str], None],
) -> Iterator[FigureChange]:
    begins("rl, to be evaluated")
    trained = _trained(sets, world, "evaluated", {})
    inputs = {**world.inputs_of("evaluate", said), "policies.rl": trained["policy"]}

    def figures(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
        begins(f"evaluate, {name.replace('-', ' ')}")
        folder = world.folder / "evaluate" / name
        config = world.config_of("evaluate", settings)
        made = run_alone(world.tasks["evaluate"], config, inputs, folder)
        return _flat(json.loads(made["report"].read_text())["policies"])

    whole = figures(said, "whole")
    yield "evaluate", "", _share(whole, figures({}, "bare")), _EVALUATED
    for switch in said if len(said) > 1 else ():
        rest = {name: each for name, each in said.items() if name != switch}
        try:
            change = _share(whole, figures(rest, f"without-{switch}"))
        except UserError:
            yield "evaluate", switch, None, _EVALUATED
            continue
        yield "evaluate", switch, change, _EVALUATED


def _of_diagnosis(
    said: Mapping[str, Any],
    sets: Mapping[str, Any],
    world: TinyWorld,
    begins: Callable[[str], None],
) -> Iterator[FigureChange]:
    config = world.config_of("diagnose", said)
    task = world.tasks["diagnose"]
    found = []
    for name, still in (("trained", {}), ("still", _STILL)):
        begins(f"diagnose, {name}")
        inputs = _material(sets, world, name, still)
        made = run_alone(task, config, inputs, world.folder / "diagnose" / name)
        found.append(json.loads(made["report"].read_text())["diagnostics"])
    changes = {name: _share(*(_flat(each[name]["figures"]) for each in found)) for name in found[0]}
    if changes:
        yield "diagnose", "", min(changes.values()), _DIAGNOSED
    for name, change in changes.items():
        yield "diagnose", f"diagnostics.{name}", change, _DIAGNOSED


def _material(
    sets: Mapping[str, Any], world: TinyWorld, name: str, still: Mapping[str, Any]
) -> dict[str, Path]:
    """All that a diagnosis may read, of arms called `rl`, made with a method's own settings."""
    ours = _trained(sets, world, name, still)
    again = _trained(sets, world, f"{name}-again", still, seed=1)
    base = world.inputs["evaluate"]
    config = world.config_of("evaluate", sets.get("evaluate") or {})
    graded = run_alone(
        world.tasks["evaluate"],
        config,
        {**base, "policies.rl": ours["policy"]},
        world.folder / name / "graded",
    )
    said = laid_over(sets.get("reward") or {}, still)
    reward = run_alone(
        world.tasks["reward"],
        world.config_of("reward", said),
        world.inputs_of("reward", said),
        world.folder / name / "reward",
    )
    return {
        **world.inputs["diagnose"],
        "policies.rl": ours["policy"],
        "repeats.rl": again["policy"],
        "rollouts.rl": ours["rollouts"],
        "curves.rl": ours["curve"],
        "reward_models.rl": reward["reward_model"],
        "reports.heldout": graded["report"],
        "completions.heldout": graded["completions"],
    }


def _trained(
    sets: Mapping[str, Any],
    world: TinyWorld,
    name: str,
    still: Mapping[str, Any],
    *,
    seed: int = 0,
) -> dict[str, Path]:
    said = laid_over(laid_over(_MEASURED, sets.get("rl") or {}), {"steps": _STEPS, **still})
    config, inputs = world.config_of("rl", said), world.inputs_of("rl", said)
    return run_alone(world.tasks["rl"], config, inputs, world.folder / name / "rl", seed=seed)


def _flat(value: Any, place: str = "") -> dict[str, Any]:
    """Numbers in JSON by their place."""
    if isinstance(value, Mapping):
        items = [(str(key), each) for key, each in value.items()]
    elif isinstance(value, list):
        items = [(str(number), each) for number, each in enumerate(value)]
    else:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return {place: value} if number else {}
    return {
        at: number for key, each in items for at, number in _flat(each, f"{place}/{key}").items()
    }


def _share(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Share of the figures of either that the other has not, or has otherwise."""
    places = one.keys() | other.keys()
    others = [at for at in places if one.get(at) != other.get(at)]
    return len(others) / max(1, len(places))
