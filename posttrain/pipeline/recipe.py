"""A recipe: the parameters of one flow, read from YAML, and the DAG that it resolves to."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from posttrain.pipeline.flow import let_import, load_flow
from posttrain.pipeline.recipe_formats import FORMAT, migrate, migrate_release, read_format
from posttrain.pipeline.slots import check_plugins
from posttrain.provenance.ledger.location import RECIPE_FILE
from posttrain.stage.config import UNKEYED, StageConfig
from posttrain.stage.declared import READS, Declared
from posttrain.stage.errors import UserError, first_line, nearest, shown
from posttrain.stage.kernels import Kernels
from posttrain.stage.resources import Resources
from posttrain.stage.slots import parts_of_modules, plugged
from posttrain.stage.spec import Dag, Reference, Stage, Task

PARAMS_FILE = "params.yaml"
_DECLARED = tuple(Declared.model_fields)
_NO_STAGES = ("run", "flow", "format", "plugins", "release", "schedules", *_DECLARED)

# Recipes of which it was said that they are of an old format: a command may read one twice.
_noticed: set[Path] = set()


class RunSettings(StageConfig):
    """How the stages of a recipe are run, as opposed to what they compute."""

    seed: int = Field(default=0, ge=0)
    """Every random choice of every stage derives from it."""
    threads: int = Field(default=2, ge=1)
    """Threads of one stage; results are bitwise equal only for an equal thread count."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Class of device that the stages compute on."""
    kernels: Kernels = "portable"
    """Kernels of the processor: `portable` are those of AVX2, which come to the same bytes on every
    x86 processor that has it; `fast` are the fastest that this one has."""
    level: Annotated[Literal["L0", "L1", "L2", "L3"], UNKEYED] = "L0"
    """Reproducibility that the recipe promises: L0 is bitwise on one machine's CPU."""
    retries: Annotated[int, UNKEYED] = Field(default=1, ge=0)
    """Times that a crashed stage is started again; it goes on from its last checkpoint."""
    timeout_minutes: Annotated[float, UNKEYED] = Field(default=60.0, gt=0)
    """A stage that runs longer is stopped."""
    stall_minutes: Annotated[float, UNKEYED] = Field(default=10.0, gt=0)
    """A stage that shows no sign of progress for this long is stopped."""
    resources: Annotated[Resources, UNKEYED] = Resources()
    """What every stage that can make use of it is given, unless its own section says otherwise."""

    def lanes(self) -> int:
        """Stages that fit on this machine's cores at once."""
        return max(1, len(os.sched_getaffinity(0)) // self.threads)

    def keyed(self) -> dict[str, str]:
        """The settings that can change a stage's bytes, and so belong into its key.

        Resources are in it as far as each stage makes use of them.
        """
        return {name: str(value) for name, value in super().keyed().items()}


@dataclass(frozen=True)
class Recipe:
    """A recipe file with its overrides applied; nothing is validated against the flow yet."""

    path: Path
    flow: str
    run: RunSettings
    sections: Mapping[str, Mapping[str, Any]]
    overrides: Mapping[str, Any] = field(default_factory=dict)
    release: Mapping[str, Any] = field(default_factory=dict)
    """What a release must show; no part of any stage, and so of no key and no generated file."""
    plugins: tuple[str, ...] = ()
    """Modules whose parts the recipe's sections may name; `posttrain.stage.slots` says how."""
    format: int = FORMAT
    """What the sections are spelled in; the task of each says what is old in it."""
    respelled: tuple[str, ...] = ()
    """What was spelled as of old in `release`."""
    declared: Declared = Declared()
    """What every stage may read beside its inputs."""

    @property
    def directory(self) -> Path:
        """Where the recipe's dvc.yaml, params.yaml and data/ live."""
        return self.path.parent

    @property
    def name(self) -> str:
        """The recipe's folder under recipes/, or the flow's name for the one at the root."""
        in_recipes = self.directory.parent.name == "recipes"
        return self.directory.name if in_recipes else self.flow.rpartition(".")[2]

    def resolve(self, root: Path) -> Dag:
        """Let the flow declare its DAG from this recipe, and check the result."""
        let_import(root)
        build = FlowBuilder(self)
        where = f"{shown(self.path)}: plugins"
        check_plugins(parts_of_modules(self.plugins, where=where), where)
        try:
            with plugged(self.plugins):
                load_flow(self.flow, root, where=shown(self.path)).declare(build)
        finally:
            _notice(self.path, build.changes)
        return build.finish()

    def resolved(self, dag: Dag) -> dict[str, Any]:
        """The recipe with every field stated: what params.yaml holds."""
        resolved: dict[str, Any] = {"flow": self.flow, "run": self.run.model_dump(mode="json")}
        if self.plugins:
            resolved["plugins"] = list(self.plugins)
        resolved |= self.declared.stated()
        for stage in dag.stages.values():
            resolved[stage.name] = stage.config.model_dump(mode="json")
            if rewired := self.sections.get(stage.name, {}).get("inputs"):
                resolved[stage.name]["inputs"] = dict(rewired)
            if stage.seed_as is not None:
                resolved[stage.name]["seed_as"] = stage.seed_as
            if own := self.sections.get(stage.name, {}).get("declares"):
                resolved[stage.name]["declares"] = dict(own)
            if stage.resources != Resources():
                resolved[stage.name]["resources"] = stage.resources.model_dump(mode="json")
        return resolved


class FlowBuilder:
    """What a flow's `declare` uses to turn recipe sections into stages."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._dag = Dag()
        self.changes: list[str] = list(recipe.respelled)
        """What was spelled as of old in `release`, and in the sections that have become stages."""

    def has(self, section: str) -> bool:
        """True where the recipe sets this section: lets a flow choose between two stages."""
        return section in self._recipe.sections

    def stage(
        self, name: str, task: Task, **inputs: Reference | Mapping[str, Reference] | None
    ) -> Stage:
        """Add a stage whose parameters are the recipe's section `name`.

        An input is another stage's output (`sft["policy"]`), or a mapping of them for a `many`
        port. The section's own `inputs:` mapping rewires single ports, its `resources:` go before
        those of the run, and with `seed_as:` it has the seed of another stage. Local files that
        the config names arrive at the task's `files` port, those that its `declares:` or the recipe
        names stand beside them.
        """
        section = dict(self._recipe.sections.get(name, {}))
        resources = self._resources(name, task, section.pop("resources", None))
        seed_as = section.pop("seed_as", None)
        declared = self._recipe.declared.joined(
            Declared.parse(
                _section(self._recipe.path, f"{name}.declares", section.pop("declares", None)),
                where=f"{name}.declares",
            )
        )
        rewired = _section(self._recipe.path, f"{name}.inputs", section.pop("inputs", None))
        if self._recipe.format != FORMAT:
            migrated = migrate({name: section}, {name: task})
            self.changes += migrated.changes
            section = migrated.values[name]
        config = task.config.parse(section, where=name)
        wired = _flatten(inputs)
        wired.update(_refer_to_files(self._recipe.directory, name, config))
        for port, text in rewired.items():
            wired[port] = _reference(f"{name}.inputs.{port}", str(text), task, port)
        wired.update(_refer_to_reads(self._recipe.directory, name, declared))
        return self._dag.add(Stage(name, task, config, wired, resources, seed_as, declared))

    def _resources(self, name: str, task: Task, given: object) -> Resources:
        """Those of the run, changed by the section's own; what the task cannot use is refused."""
        own = _section(self._recipe.path, f"{name}.resources", given)
        usable = {
            name for name, used in (("processes", task.parallel), ("ray", task.on_ray)) if used
        }
        given_to_all = self._recipe.run.resources.model_copy(
            update={k: f.default for k, f in Resources.model_fields.items() if k not in usable}
        )
        resources = Resources.parse(given_to_all.changed(own), where=f"{name}.resources")
        if resources.processes > 1 and not task.parallel:
            raise UserError(
                f"{name}.resources.processes: {task.package} works in one process; leave it out"
            )
        if resources.ray and not task.on_ray:
            raise UserError(
                f"{name}.resources.ray: {task.package} has no work for it; leave it out"
            )
        return resources

    def finish(self) -> Dag:
        """The checked DAG; a recipe section that no stage uses is refused."""
        for name in self._recipe.sections:
            if name not in self._dag.stages:
                hint = nearest(name, [*self._dag.stages, *_NO_STAGES])
                raise UserError(f"{shown(self._recipe.path)}: unknown section '{name}'{hint}")
        _refuse_odd_seeds(self._dag)
        self._dag.check()
        return self._dag


def _refuse_odd_seeds(dag: Dag) -> None:
    """Refuse a `seed_as` by which a stage would share its seed with no other one."""
    for stage in dag.stages.values():
        where, given = f"{stage.name}.seed_as", stage.seed_as
        others = [other for other in dag.stages.values() if other is not stage]
        if given is None:
            continue
        if not isinstance(given, str) or given == stage.name:
            raise UserError(f"{where}: name another stage, whose seed it shares; got {given!r}")
        if (named := dag.stages.get(given)) is not None and named.seed_as is not None:
            raise UserError(
                f"{where}: {given} itself takes the seed of {named.seed_as}; name that one"
            )
        if named is None and given not in [other.seed_as for other in others]:
            hint = nearest(given, dag.stages) or "; name another stage, whose seed it shares"
            raise UserError(f"{where}: no other stage has the seed of '{given}'{hint}")


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe file (or a folder that holds recipe.yaml) and apply `a.b=value` overrides."""
    file = path / RECIPE_FILE if path.is_dir() else path
    values = _read_yaml(file)
    changes = dict(_parse_override(text) for text in overrides)
    for key, value in changes.items():
        _assign(values, key, value)
    form = read_format(values.pop("format", None), where=str(file))
    flow = values.pop("flow", None)
    if not isinstance(flow, str) or not all(part.isidentifier() for part in flow.split(".")):
        raise UserError(f"{file}: 'flow' must name a module such as flows.post_training")
    run = RunSettings.parse(_section(file, "run", values.pop("run", None)), where="run")
    migrated = migrate_release(_section(file, "release", values.pop("release", None)))
    release = migrated.values["release"]
    plugins = _plugins(file, values.pop("plugins", None))
    stated = {name: values.pop(name, None) for name in _DECLARED}
    given = {name: value for name, value in stated.items() if value is not None}
    declared = Declared.parse(given, where="recipe")
    # When it runs is no business of a run: `posttrain schedule apply` reads them from the commit.
    values.pop("schedules", None)
    sections = {name: _section(file, name, value) for name, value in values.items()}
    return Recipe(
        path=file.resolve(),
        flow=flow,
        run=run,
        sections=sections,
        overrides=changes,
        release=release,
        plugins=plugins,
        format=form,
        respelled=migrated.changes,
        declared=declared,
    )


def _notice(file: Path, changes: Sequence[str]) -> None:
    """Say on stderr, once, what a recipe spells as of old."""
    if changes and file not in _noticed:
        _noticed.add(file)
        print(f"{file}: {'; '.join(changes)}. Spell it so, with format: {FORMAT}", file=sys.stderr)


def _read_yaml(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise UserError(
            f"there is no recipe at {file}; name a recipe file or a folder that has one"
        )
    try:
        values = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    except MarkedYAMLError as error:
        # An open bracket is noticed at the end of the file, but it is where it was opened.
        opened = error.context_mark if "flow" in (error.context or "") else None
        mark = opened or error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else "?"
        raise UserError(f"{file}:{line}: not valid YAML: {error.problem}") from None
    except (YAMLError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{file}: not a text file: {first_line(error)}") from None
    if not isinstance(values, dict):
        raise UserError(f"{file}: a recipe is a mapping of sections, starting with 'flow:'")
    if wrong := [name for name in values if not isinstance(name, str)]:
        raise UserError(f"{file}: the name of a section must be text, got {wrong[0]!r}")
    return values


def _plugins(file: Path, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    names = value if isinstance(value, list) else [value]
    for name in names:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise UserError(f"{file}: plugins: {name!r} is no module; write it as mine.rewards")
    return tuple(names)


def _section(file: Path, name: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        hint = "" if name in _NO_STAGES else nearest(name, _NO_STAGES)
        raise UserError(
            f"{file}: section '{name}' must be a mapping of parameters, got {value!r}{hint}"
        )
    return value


def _parse_override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[\w.-]+", key):
        raise UserError(f"--set takes section.parameter=value, got '{text}'")
    try:
        return key, YAML(typ="safe").load(value)
    except YAMLError:
        raise UserError(f"--set {key}: not a YAML value: '{value}'") from None


def _assign(values: dict[str, Any], dotted: str, value: object) -> None:
    *parents, last = dotted.split(".")
    place = values
    for parent in parents:
        inner = place.get(parent)
        if inner is None:
            inner = place[parent] = {}
        if not isinstance(inner, dict):
            raise UserError(f"--set {dotted}: '{parent}' is a value, not a section")
        place = inner
    place[last] = value


def _flatten(
    inputs: Mapping[str, Reference | Mapping[str, Reference] | None],
) -> dict[str, Reference]:
    flat: dict[str, Reference] = {}
    for port, value in inputs.items():
        if isinstance(value, Reference):
            flat[port] = value
        elif value is not None:
            flat.update({f"{port}.{name}": reference for name, reference in value.items()})
    return flat


def _refer_to_files(directory: Path, stage: str, config: StageConfig) -> dict[str, Reference]:
    files: dict[str, Reference] = {}
    for name, given in config.local_files().items():
        path = directory / Path(given).expanduser()
        if not path.exists():
            raise UserError(f"{stage}: source '{name}' is at {path}, and nothing is there")
        files[f"files.{name}"] = Reference.to_file(path)
    return files


def _refer_to_reads(directory: Path, stage: str, declared: Declared) -> dict[str, Reference]:
    files: dict[str, Reference] = {}
    for given in declared.reads:
        path = directory / Path(given).expanduser()
        if not path.exists():
            raise UserError(f"{stage}: it reads {given}, and nothing is there; correct the path")
        files[f"{READS}.{given}"] = Reference.to_file(path)
    return files


def _reference(where: str, text: str, task: Task, port: str) -> Reference:
    stage, dot, output = text.partition(".")
    if not dot:
        raise UserError(f"{where}: write it as stage.output, for example sft.policy; got '{text}'")
    declared = task.inputs.get(port.partition(".")[0])
    if declared is None:
        raise UserError(f"{where}: there is no such input{nearest(port, task.inputs)}")
    return Reference(declared.type, stage=stage, output=output)
