"""What turns a recipe's sections into the stages of a DAG, as its flow declares them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from posttrain.pipeline.connected_verifiers import connect_verifiers
from posttrain.pipeline.flow import load_task
from posttrain.pipeline.posed_problems import refuse_other_worlds
from posttrain.pipeline.recipe_file import NO_STAGES, is_stage_name
from posttrain.pipeline.recipe_method import (
    layers_of_recipe,
    refuse_section_of_method,
    told_where_it_is_said,
)
from posttrain.pipeline.recipe_values import RecipeValues
from posttrain.pipeline.shared_tokenizers import refuse_other_tokenizers
from posttrain.pipeline.stage_section import lay_sections, stage_from
from posttrain.stage.errors import UserError, nearest, shown
from posttrain.stage.spec import Dag, Reference, Stage, Task

Input = Reference | Mapping[str, Reference] | None
"""What a flow wires to a port: one output, several by name for a `many` port, or nothing."""

Carried = TypeVar("Carried")
"""What one round of a flow hands to the next."""


@dataclass(frozen=True)
class _Declared:
    """A stage as its flow declared it, so that a recipe can have it again."""

    section: str
    suffix: str
    task: Task
    inputs: Mapping[str, Reference]

    @property
    def name(self) -> str:
        return self.section + self.suffix


class FlowBuilder:
    """What a flow's `declare` uses to turn recipe sections into stages."""

    def __init__(self, recipe: RecipeValues) -> None:
        self._recipe = recipe
        self._dag = Dag()
        self._declared: list[_Declared] = []
        self._used: set[str] = set()
        self._has_rounds = False
        self.changes: list[str] = list(recipe.respelled)
        """What was spelled as of old in `release`, and in the sections that have become stages."""

    def has(self, section: str) -> bool:
        """True where the recipe sets this section: lets a flow choose between two stages."""
        return section in self._recipe.names()

    def stage(self, name: str, task: Task, **inputs: Input) -> Stage:
        """Add a stage whose parameters are the recipe's section `name`.

        An input is another stage's output (`sft["policy"]`), or a mapping of them for a `many`
        port. The section's own `inputs:` mapping rewires single ports, or unplugs them by a null;
        its `resources:` go before those of the run, and with `seed_as:` it has the seed of another
        stage. Local files that the config names arrive at the task's `files` port, those that its
        `declares:` or the recipe names stand beside them. Where the section is a list, its further
        entries become stages of their own, wired like this one unless they say otherwise.
        """
        return self._declare(_Declared(name, "", task, _flatten(inputs)))

    def rounds(
        self, number: int, body: Callable[["Round", Carried], Carried], carried: Carried
    ) -> Carried:
        """Unroll rounds of stages into the DAG.

        Args:
            number: How many there are, unless the recipe's `rounds` says otherwise.
            body: Declares the stages of one round and returns what the next one begins with. Its
                `stage("sft", ...)` makes `sft_1`, `sft_2` and so on: the recipe's section `sft` is
                for all of them, and `sft_2` says otherwise for the second.
            carried: What the first round begins with, such as a policy.

        Returns:
            What the last round returned.

        """
        self._has_rounds = True
        for place in range(1, (self._recipe.rounds or number) + 1):
            carried = body(Round(place, self), carried)
        return carried

    def stage_of_round(
        self, place: int, name: str, task: Task, inputs: Mapping[str, Input]
    ) -> Stage:
        """Add a stage of one round; see `Round.stage`."""
        return self._declare(_Declared(name, f"_{place}", task, _flatten(inputs)))

    def finish(self) -> Dag:
        """The checked DAG; a recipe section that no stage uses is refused."""
        file = shown(self._recipe.path)
        if self._recipe.rounds is not None and not self._has_rounds:
            raise UserError(f"{file}: rounds: {self._recipe.flow} has no rounds; leave it out")
        flows_own = len(self._dag.stages)
        for name in self._recipe.names():
            if name not in self._used:
                self._add_for_recipe(name)
        if not self._dag.stages:
            raise UserError(f"{file}: the flow '{self._recipe.flow}' declares no stage; call"
                            " build.stage in its declare")  # fmt: skip
        for name in self._recipe.names():
            if name not in self._used:
                refuse_section_of_method(self._recipe, name)
                hint = nearest(name, [*self._dag.stages, *NO_STAGES])
                hint = hint or f"; the stages of this flow are {', '.join(self._dag.stages)}"
                raise UserError(f"{file}: unknown section '{name}'{hint}")
        _refuse_odd_seeds(self._dag)
        connect_verifiers(self._dag)
        self._dag.check()
        refuse_other_worlds(self._dag)
        refuse_other_tokenizers(self._dag)
        if len(self._dag.stages) > flows_own:
            # What a recipe adds is told of where it runs, and not behind all that the flow has.
            self._dag.stages = {name: self._dag.stages[name] for name in self._dag.order()}
        return self._dag

    def _declare(self, declared: _Declared) -> Stage:
        self._declared.append(declared)
        return self._add(declared, declared.section, {})

    def _add(self, declared: _Declared, section: str, origin: Mapping[str, str]) -> Stage:
        """Add a declared stage, or another of its kind under a section of its own."""
        name = section + declared.suffix
        if not is_stage_name(name):
            raise UserError(
                f"{shown(self._recipe.path)}: flow '{self._recipe.flow}': '{name}' is no name for a"
                " stage; use letters, digits, '-' and '_', a letter first"
            )
        layers = list(dict.fromkeys((section, name)))
        self._used.update(layers)
        given, changes = lay_sections(self._recipe, layers, declared.task)
        self.changes += changes

        def made(said: Mapping[str, Any]) -> Stage:
            params = {key: value for key, value in said.items() if key not in origin}
            return stage_from(self._recipe, name, declared.task, params, declared.inputs, origin)

        try:
            return self._dag.add(made(given))
        except UserError as error:
            of_method = layers_of_recipe(self._recipe, *layers)
            raise told_where_it_is_said(error, name, of_method, made) from None

    def _add_for_recipe(self, name: str) -> None:
        """Add the stage that a section asks for by `repeats` or `task`, if it does."""
        where = f"{shown(self._recipe.path)}: {name}"
        recipe = self._recipe
        section = {**recipe.of_method.get(name, {}), **recipe.sections.get(name, {})}
        repeats, task = section.get("repeats"), section.get("task")
        if repeats is not None and task is not None:
            raise UserError(f"{where}: it has a task of its own or repeats a stage; leave one out")
        if task is not None:
            added = _Declared(name, "", load_task(str(task), where=f"{where}.task"), {})
            self._add(added, name, {"task": str(task)})
        elif repeats is not None:
            originals = [each for each in self._declared if repeats in (each.section, each.name)]
            if not originals:
                hint = nearest(str(repeats), [each.name for each in self._declared])
                raise UserError(f"{where}: repeats: the flow has no stage '{repeats}'{hint}")
            for each in originals:
                whole = each if repeats == each.section else replace(each, suffix="")
                self._add(whole, name, {"repeats": each.name})


class Round:
    """One round of a flow: its stages have its number in their names."""

    def __init__(self, number: int, build: FlowBuilder) -> None:
        self.number = number
        """1 for the first round."""
        self._build = build

    def has(self, section: str) -> bool:
        """True where the recipe sets this section, for all rounds or for this one."""
        return self._build.has(section) or self._build.has(f"{section}_{self.number}")

    def stage(self, name: str, task: Task, **inputs: Input) -> Stage:
        """Add a stage `name_1` in the first round, `name_2` in the second; see `FlowBuilder`."""
        return self._build.stage_of_round(self.number, name, task, inputs)


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


def _flatten(inputs: Mapping[str, Input]) -> dict[str, Reference]:
    flat: dict[str, Reference] = {}
    for port, value in inputs.items():
        if isinstance(value, Reference):
            flat[port] = value
        elif value is not None:
            flat.update({f"{port}.{name}": reference for name, reference in value.items()})
    return flat
