"""The JSON schema of a flow's recipes, by which an editor completes and checks them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, JsonSchemaValue, models_json_schema

from posttrain.pipeline.cost_settings import CostSettings
from posttrain.pipeline.flow import let_import, load_flow
from posttrain.pipeline.notices import NoticeSettings
from posttrain.pipeline.profile import PROFILES
from posttrain.pipeline.recipe import RunSettings
from posttrain.pipeline.recipe_formats import FORMAT
from posttrain.stage.declared import Declared
from posttrain.stage.descriptions import DescribedJsonSchema
from posttrain.stage.resources import Resources
from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import plugged
from posttrain.stage.spec import Reference, Stage, Task
from posttrain.stage.steady import SteadyFields

_OF_EVERY_STAGE: Mapping[str, JsonSchemaValue] = {
    "inputs": {
        "type": "object",
        "additionalProperties": {
            "anyOf": [
                {"type": "string", "pattern": r"^[\w-]+\.[\w-]+$"},
                {"type": "null"},
                {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
            ]
        },
        "description": "Other inputs than the flow's, by port: stage.output, or null for none.",
    },
    "seed_as": {
        "type": "string",
        "description": "Have the seed of this other stage, to be compared with it.",
    },
}

_ADDED: JsonSchemaValue = {
    "type": "object",
    "properties": {
        **_OF_EVERY_STAGE,
        "task": {"type": "string", "description": "A task, such as tasks.probe."},
        "repeats": {"type": "string", "description": "The stage of the flow that it repeats."},
    },
    "oneOf": [{"required": ["task"]}, {"required": ["repeats"]}],
    "description": "A stage that the recipe adds to its flow.",
}

_ROUNDS: JsonSchemaValue = {
    "type": "integer",
    "minimum": 1,
    "description": "How many rounds there are, in place of the flow's own number.",
}


class _StageRecorder:
    """Stands in for a flow's `build`: notes which stages it declares and what it asks for."""

    def __init__(self, given: frozenset[str]) -> None:
        self.tasks: dict[str, Task] = {}
        self.in_rounds: set[str] = set()
        self.asked: set[str] = set()
        self.number = 0
        self._given = given

    def has(self, section: str) -> bool:
        self.asked.add(section)
        return section in self._given

    def stage(
        self, name: str, task: Task, **inputs: Reference | Mapping[str, Reference] | None
    ) -> Stage:
        self.tasks[name] = task
        if self.number:
            self.in_rounds.add(name)
        return Stage(name, task, task.config.model_construct(), {})

    def rounds(self, number: int, body: Callable[[Any, Any], Any], carried: Any) -> Any:
        """Declare two rounds: the first may have stages that no other has."""
        for self.number in (1, 2):
            carried = body(self, carried)
        self.number = 0
        return carried


@dataclass(frozen=True)
class FlowSections:
    """The sections that recipes of a flow may have."""

    tasks: Mapping[str, Task]
    """Section -> the task of its stages."""
    in_rounds: frozenset[str] = frozenset()
    """Those whose stages stand in every round."""


def stages_of_flow(flow: str, root: Path) -> dict[str, Task]:
    """Every stage that a flow may declare, whichever sections its recipe has.

    Args:
        flow: Its module, such as flows.post_training.
        root: The project's root.

    Returns:
        The task of each stage, by the stage's name; of stages in rounds by their section's.

    Raises:
        UserError: There is no such flow.

    """
    return dict(sections_of_flow(flow, root).tasks)


def sections_of_flow(flow: str, root: Path) -> FlowSections:
    """Every section that a flow may make stages of; see `stages_of_flow`."""
    let_import(root)
    declare = load_flow(flow, root, where="posttrain schema").declare
    plain = _recorded(declare, frozenset())
    every = _recorded(declare, frozenset(plain.asked))
    alone = [_recorded(declare, frozenset({section})) for section in sorted(plain.asked)]
    recorded = (plain, *alone, every)
    return FlowSections(
        {name: task for each in recorded for name, task in each.tasks.items()},
        frozenset(name for each in recorded for name in each.in_rounds),
    )


def schedulable_fields(flow: str, root: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Find all numbers of a flow's recipes that may be schedules.

    Args:
        flow: Its module, such as flows.post_training.
        root: The project's root.

    Yields:
        The place of a config in a recipe; the kind of the part that it is, or nothing; and the
        names of its numbers.

    """
    # Two parts of a slot may hold the same one: its place and kind are told once.
    told: set[tuple[str, str]] = set()
    for name, task in stages_of_flow(flow, root).items():
        for place, kind, names in _schedulable_in(task.config, name, ""):
            if (place, kind) not in told:
                told.add((place, kind))
                yield place, kind, names


def _schedulable_in(
    config: type[BaseModel], place: str, kind: str, around: Sequence[type[BaseModel]] = ()
) -> Iterator[tuple[str, str, list[str]]]:
    # A part may hold parts of its own slot, and these again: each is gone into once.
    if config in around:
        return
    if issubclass(config, Schedulable) and (names := config.schedulable()):
        yield place, kind, [name for name in config.model_fields if name in names]
    steady = config.STEADY if issubclass(config, SteadyFields) else frozenset()
    for name, info in config.model_fields.items():
        if name in steady:
            continue
        for each, inner in _configs_in(Annotated[info.annotation, *info.metadata, None]):
            yield from _schedulable_in(inner, f"{place}.{name}", each, (*around, config))


def _configs_in(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """The configs that a field may hold, each with its kind where it is a part."""
    slots = [each.slot for each in getattr(annotation, "__metadata__", ()) if hasattr(each, "slot")]
    if slots:
        yield from slots[0].parts.items()
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation
    else:
        for argument in get_args(annotation):
            yield from _configs_in(argument)


def recipe_schema(
    flow: str, root: Path, *, release: type[BaseModel], plugins: Sequence[str] = ()
) -> dict[str, Any]:
    """Build the JSON schema (draft 2020-12) of the recipes of a flow.

    Args:
        flow: Its module, such as flows.post_training.
        root: The project's root.
        release: The config of the section `release`.
        plugins: Modules whose parts the recipes may name, beside those that ship or are installed.

    Returns:
        The schema, with a description for every section and field that has one.

    """
    sections = sections_of_flow(flow, root)
    tasks = sections.tasks
    beside: dict[str, type[BaseModel]] = {
        "cost": CostSettings,
        "notify": NoticeSettings,
        "release": release,
    }
    configs: set[type[BaseModel]] = {RunSettings, Resources, Declared, *beside.values()}
    configs |= {task.config for task in tasks.values()}
    ordered = sorted(configs, key=lambda each: each.__qualname__)
    pairs: list[tuple[type[BaseModel], JsonSchemaMode]] = [(each, "validation") for each in ordered]
    with plugged(plugins):
        made, whole = models_json_schema(pairs, schema_generator=DescribedJsonSchema)
    definitions = whole["$defs"]

    def stage(task: Task) -> JsonSchemaValue:
        own = made[(task.config, "validation")]
        own = definitions[own["$ref"].rpartition("/")[2]] if "$ref" in own else own
        more = {**_OF_EVERY_STAGE, "resources": made[(Resources, "validation")]}
        more["declares"] = made[(Declared, "validation")]
        return {**own, "properties": {**own["properties"], **more}}

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A posttrain recipe of {flow}",
        "type": "object",
        "required": ["flow"],
        "properties": {
            "flow": {"const": flow, "description": "The module that declares the stages."},
            "format": {
                "enum": [*range(1, FORMAT + 1)],
                "description": f"The format of the recipe; today's is {FORMAT}.",
            },
            "schedules": {
                "type": "object",
                "description": "When the recipe runs, by name; posttrain schedule --help says how.",
                "additionalProperties": {"type": "object", "required": ["cron"]},
            },
            "method": {
                "type": "string",
                "description": "A method whose settings lie under the recipe's own sections;"
                " posttrain method list names them.",
            },
            "profile": {
                "enum": [*PROFILES],
                "description": "Which defaults lie below what the recipe states: those of a tiny"
                " model or of one that was trained elsewhere; auto goes by its size.",
            },
            "plugins": {
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
                "description": "Modules whose parts the recipe may name.",
            },
            **definitions[Declared.__name__]["properties"],
            "run": _or_null(made[(RunSettings, "validation")]),
            **{name: _or_null(made[(each, "validation")]) for name, each in beside.items()},
            **({"rounds": _ROUNDS} if sections.in_rounds else {}),
            **{name: _one_or_several(stage(task)) for name, task in tasks.items()},
        },
        "patternProperties": {
            f"^{name}_[1-9][0-9]*$": _or_null(stage(tasks[name]))
            for name in sorted(sections.in_rounds)
        },
        "additionalProperties": _ADDED,
        "$defs": definitions,
    }


def _one_or_several(section: JsonSchemaValue) -> JsonSchemaValue:
    """A section, nothing, or a list of sections of which all but the first are named by `as`."""
    named = {"as": {"type": "string", "description": "Name of the stage, for it alone."}}
    entry = {**section, "properties": {**section["properties"], **named}}
    several = {
        "type": "array",
        "minItems": 1,
        "prefixItems": [_or_null(section)],
        "items": {**entry, "required": [*section.get("required", []), "as"]},
    }
    return {"anyOf": [section, {"type": "null"}, several]}


def _or_null(section: JsonSchemaValue) -> JsonSchemaValue:
    """A section without a parameter may stand there with nothing after the colon."""
    return {"anyOf": [section, {"type": "null"}]}


def _recorded(declare: Callable[[Any], None], given: frozenset[str]) -> _StageRecorder:
    """What a flow declares for a recipe that has the sections `given`."""
    recorder = _StageRecorder(given)
    declare(recorder)
    return recorder
