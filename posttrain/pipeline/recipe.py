"""A recipe: the parameters of one flow, read from YAML, and the DAG that it resolves to."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.methods.find import methods_of
from posttrain.pipeline.flow import declare, let_import, load_flow
from posttrain.pipeline.flow_builder import FlowBuilder as FlowBuilder
from posttrain.pipeline.profile import IMPORT, choose_profile
from posttrain.pipeline.recipe_file import (
    DECLARED,
    apply_override,
    parse_override,
    read_plugins,
    read_rounds,
    read_yaml,
    section_of,
    unfold_lists,
)
from posttrain.pipeline.recipe_formats import FORMAT, migrate_release, read_format
from posttrain.pipeline.recipe_method import sets_of_method
from posttrain.pipeline.recipe_values import RecipeValues
from posttrain.pipeline.recipe_values import RunSettings as RunSettings
from posttrain.pipeline.slots import check_plugins
from posttrain.provenance.ledger.location import RECIPE_FILE
from posttrain.stage.declared import Declared
from posttrain.stage.errors import UserError, shown
from posttrain.stage.resources import Resources
from posttrain.stage.slots import parts_of_modules, plugged
from posttrain.stage.spec import Dag

# Recipes of which it was said that they are of an old format: a command may read one twice.
_noticed: set[Path] = set()


@dataclass(frozen=True)
class Recipe(RecipeValues):
    """A recipe, and what its flow makes of it."""

    def resolve(self, root: Path) -> Dag:
        """Let the flow declare its DAG from this recipe, and check the result."""
        let_import(root)
        build = FlowBuilder(self)
        where = f"{shown(self.path)}: plugins"
        check_plugins(parts_of_modules(self.plugins, where=where), where)
        try:
            with plugged(self.plugins), methods_of(root, self.plugins):
                flow = load_flow(self.flow, root, where=shown(self.path))
                declare(flow, build, where=shown(self.path))
                return build.finish()
        finally:
            _notice(self.path, build.changes)

    def resolved(self, dag: Dag) -> dict[str, Any]:
        """The recipe with every field stated: what params.yaml holds."""
        resolved: dict[str, Any] = {"flow": self.flow, "run": self.run.model_dump(mode="json")}
        if self.plugins:
            resolved["plugins"] = list(self.plugins)
        if self.rounds is not None:
            resolved["rounds"] = self.rounds
        if self.profile.name == "real":
            resolved["profile"] = self.profile.name
        resolved |= self.declared.stated()
        for stage in dag.stages.values():
            resolved[stage.name] = {**stage.config.model_dump(mode="json"), **stage.stated}
            if stage.resources != Resources():
                resolved[stage.name]["resources"] = stage.resources.model_dump(mode="json")
        return resolved


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe file (or a folder that holds recipe.yaml) and apply `a.b=value` overrides."""
    file = path / RECIPE_FILE if path.is_dir() else path
    values = unfold_lists(file, read_yaml(file))
    changes = dict(parse_override(text) for text in overrides)
    for key, value in changes.items():
        apply_override(values, key, value)
    form = read_format(values.pop("format", None), where=str(file))
    flow = values.pop("flow", None)
    if not isinstance(flow, str) or not all(part.isidentifier() for part in flow.split(".")):
        raise UserError(f"{file}: 'flow' must name a module such as flows.post_training")
    run = RunSettings.parse(section_of(file, "run", values.pop("run", None)), where="run")
    migrated = migrate_release(section_of(file, "release", values.pop("release", None)))
    release = migrated.values["release"]
    cost = section_of(file, "cost", values.pop("cost", None))
    notify = section_of(file, "notify", values.pop("notify", None))
    rounds = read_rounds(file, values.pop("rounds", None))
    plugins = read_plugins(file, values.pop("plugins", None))
    stated = {name: values.pop(name, None) for name in DECLARED}
    given = {name: value for name, value in stated.items() if value is not None}
    declared = Declared.parse(given, where="recipe")
    # When it runs is no business of a run: `posttrain schedule apply` reads them from the commit.
    values.pop("schedules", None)
    method, profile = values.pop("method", None), values.pop("profile", None)
    own = {name: section_of(file, name, value) for name, value in values.items()}
    return Recipe(
        path=file.resolve(),
        flow=flow,
        run=run,
        sections=own,
        method=method or "",
        of_method=sets_of_method(file, method, plugins),
        overrides=changes,
        release=release,
        cost=cost,
        notify=notify,
        plugins=plugins,
        format=form,
        respelled=migrated.changes,
        declared=declared,
        rounds=rounds,
        profile=choose_profile(file, profile, own.get(IMPORT), form=form),
    )


def _notice(file: Path, changes: Sequence[str]) -> None:
    """Say on stderr, once, what a recipe spells as of old."""
    if changes and file not in _noticed:
        _noticed.add(file)
        # The section of all rounds is read once for each.
        told = "; ".join(dict.fromkeys(changes))
        print(f"{file}: {told}. Spell it so, with format: {FORMAT}", file=sys.stderr)
