"""Sections of a recipe made into a stage: what goes before what, its wiring, what it may use."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.methods.lay import laid_over
from posttrain.pipeline.left_out import refuse_near_misses
from posttrain.pipeline.recipe_file import section_of
from posttrain.pipeline.recipe_formats import FORMAT, migrate
from posttrain.pipeline.recipe_rewrites import LEFT_OUT
from posttrain.pipeline.recipe_values import RecipeValues
from posttrain.stage.config import configs_in
from posttrain.stage.declared import READS, Declared, shipped_path
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.resources import Resources
from posttrain.stage.spec import Port, Reference, Stage, Task

_FILES = ": a file is read by a stage of its own, such as one of tasks.import_pairs"


def lay_sections(
    recipe: RecipeValues, sections: Sequence[str], task: Task
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Lay sections of a recipe over each other, in today's spelling, and over what lies below them.

    These are its method's, and below them its profile's.

    Args:
        recipe: Its values; a section that it does not have says nothing.
        sections: Names, the undermost first.
        task: Of the stage that they are for.

    Returns:
        What they say together, and what was spelled as of old.

    """
    own, under = (_laid(said, sections) for said in (recipe.sections, recipe.of_method))
    if recipe.format == FORMAT:
        return _over_profile(recipe, task, laid_over(under, own)), ()
    # Laid over each other first: what a section leaves out, the one below may say. And what a
    # method leaves out is as today, not as it was when the recipe's format was written.
    named = next((name for name in sections if name in recipe.sections), sections[0])
    left_out = {} if recipe.of_method.keys() & {*sections} else LEFT_OUT
    migrated = migrate({named: own}, {named: task}, left_out=left_out)
    said = laid_over(under, migrated.values[named])
    return _over_profile(recipe, task, said), migrated.changes


def _over_profile(recipe: RecipeValues, task: Task, said: Mapping[str, Any]) -> dict[str, Any]:
    on_gpu = recipe.run.device == "cuda"
    return laid_over(recipe.profile.sets_for(task.package, said, on_gpu=on_gpu), said)


def stage_from(
    recipe: RecipeValues,
    name: str,
    task: Task,
    section: Mapping[str, Any],
    inputs: Mapping[str, Reference],
    origin: Mapping[str, str],
) -> Stage:
    """Make a stage of its section.

    Args:
        recipe: Its path, and what it gives to every stage.
        name: The stage's.
        task: What it does.
        section: What the recipe says of it.
        inputs: What the flow wires to each port, before the section's own `inputs`.
        origin: The `task` or `repeats` by which a recipe adds it to its flow; it is stated again.

    Returns:
        The stage; nothing is known yet of the stages that it refers to.

    Raises:
        UserError: A parameter, a port or a file is not as it must be.

    """
    params = dict(section)
    own = {
        each: section_of(recipe.path, f"{name}.{each}", params.pop(each, None))
        for each in ("inputs", "declares", "resources")
    }
    own["inputs"] = inputs_by_port(own["inputs"])
    seed_as = params.pop("seed_as", None)
    declared = recipe.declared.joined(Declared.parse(own["declares"], where=f"{name}.declares"))
    config = task.config.parse(params, where=name)
    refuse_near_misses(params, config, where=name)
    wired = dict(inputs) | _refer_to(recipe.directory, "files", config.local_files())
    for port, given in own["inputs"].items():
        where = f"{name}.inputs.{port}"
        if given is None:
            _unplug(where, wired, task, port)
        else:
            wired[port] = _reference(where, str(given), task, port)
    reads = (*declared.reads, *(file for each in configs_in(config) for file in each.read_files()))
    wired.update(_refer_to(recipe.directory, READS, {each: shipped_path(each) for each in reads}))
    resources = _resources(recipe, name, task, own["resources"])
    stated = {"inputs": own["inputs"], "seed_as": seed_as, "declares": own["declares"]}
    return Stage(
        name,
        task,
        config,
        wired,
        resources,
        seed_as,
        declared,
        {**origin, **{key: value for key, value in stated.items() if value}},
    )


def _laid(said: Mapping[str, Mapping[str, Any]], sections: Sequence[str]) -> dict[str, Any]:
    laid: dict[str, Any] = {}
    for name in sections:
        laid = laid_over(laid, said.get(name, {}))
    return laid


def _resources(recipe: RecipeValues, name: str, task: Task, own: Mapping[str, Any]) -> Resources:
    """Those of the run, changed by the section's own; what the task cannot use is refused."""
    usable = {name for name, used in (("processes", task.parallel), ("ray", task.on_ray)) if used}
    given_to_all = recipe.run.resources.model_copy(
        update={k: f.default for k, f in Resources.model_fields.items() if k not in usable}
    )
    resources = Resources.parse(given_to_all.changed(own), where=f"{name}.resources")
    if resources.processes > 1 and not task.parallel:
        raise UserError(
            f"{name}.resources.processes: {task.package} works in one process; leave it out"
        )
    if resources.ray and not task.on_ray:
        raise UserError(f"{name}.resources.ray: {task.package} has no work for it; leave it out")
    return resources


def _refer_to(directory: Path, port: str, named: Mapping[str, str]) -> dict[str, Reference]:
    """Refer to files by name, which may not be there: what is not there the plan tells."""
    return {
        f"{port}.{name}": Reference.to_file(directory / Path(given).expanduser())
        for name, given in named.items()
    }


def _reference(where: str, text: str, task: Task, port: str) -> Reference:
    stage, dot, output = text.partition(".")
    if not (dot and stage.isidentifier() and output):
        raise UserError(
            f"{where}: write it as stage.output, for example sft.policy; got '{text}'"
            f"{_FILES if '/' in text else ''}"
        )
    declared = port_of(where, task, port)
    return Reference(declared.type, stage=stage, output=output)


def inputs_by_port(given: Mapping[str, Any]) -> dict[str, Any]:
    """Write what a section connects by port, a `many` port's as `reward_models.helpful`."""
    wired: dict[str, Any] = {}
    for port, value in given.items():
        named = value.items() if isinstance(value, Mapping) else [("", value)]
        wired |= {f"{port}.{name}" if name else port: each for name, each in named}
    return wired


def _unplug(where: str, wired: dict[str, Reference], task: Task, port: str) -> None:
    """Take out what is connected to a port, or to all names of a `many` port."""
    declared = port_of(where, task, port)
    if not (declared.optional or declared.many):
        raise UserError(
            f"{where}: {task.package} cannot do without it ({declared.doc}); write stage.output in"
            " place of null"
        )
    gone = [name for name in wired if name == port or name.startswith(f"{port}.")]
    if "." in port and not gone:
        raise UserError(f"{where}: nothing of that name is connected{nearest(port, wired)}")
    for name in gone:
        del wired[name]


def port_of(where: str, task: Task, port: str) -> Port:
    """Find the port that an input of a section is for.

    Args:
        where: The input's place in the recipe, for the error.
        task: Of the stage.
        port: Its name, or that of a `many` port with a name after it.

    Returns:
        The port.

    Raises:
        UserError: The task has none of that name.

    """
    declared = task.inputs.get(port.partition(".")[0])
    if declared is None:
        raise UserError(f"{where}: there is no such input{nearest(port, task.inputs)}")
    return declared
