"""The key of each stage of a recipe: its code, parameters, inputs and how it is run."""

import os
import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from posttrain.pipeline.comparison import real_differences, same_rules
from posttrain.pipeline.determinism import library_environment
from posttrain.pipeline.hermetic.environment import decisive
from posttrain.pipeline.recipe import Recipe
from posttrain.pipeline.verifiers import VERIFIES, entry_of, verifiers_of
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.code import (
    FRAMEWORK,
    CodeClosure,
    CodeReader,
    Signature,
    SourceArchive,
    optional,
)
from posttrain.provenance.key import Difference, Key, differences, stage_key
from posttrain.provenance.ledger import Ledger
from posttrain.provenance.ledger.records import StageRun
from posttrain.stage.config import StageConfig, configs_in
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import derived_seed
from posttrain.stage.slots import Part, parts_in
from posttrain.stage.spec import ArtifactKind, Dag, Stage

INTERFACE = (
    # Which actor does what decides nothing about its result.
    "posttrain.backends.cluster",
    "posttrain.methods",
    "posttrain.pipeline.execution.assignment",
    "posttrain.stage.errors",
    "posttrain.stage.artifact_kinds",
    "posttrain.stage.config",
    "posttrain.stage.context",
    "posttrain.stage.declared",
    "posttrain.stage.installed",
    "posttrain.stage.needs",
    "posttrain.stage.part_checks",
    "posttrain.stage.part_schema",
    "posttrain.stage.resources",
    "posttrain.stage.rules",
    "posttrain.stage.slots",
    "posttrain.stage.spec",
)
"""Modules and packages whose source no closure takes in, as they stand between a stage and whoever
runs it. What they hand over (parameters, seed, threads, device) is in the key by value; how they
report progress and mistakes cannot change a result."""

GENERATED = ("dvc.yaml", "dvc.lock", "params.yaml", "posttrain.lock", "metrics.json", "plots")
"""Files beside a recipe that every run writes."""

_SETUP = (
    "posttrain.pipeline.execution.call:perform",
    "posttrain.pipeline.execution.call:set_up",
)
"""What is done before a stage's function is called, and with what it is called."""


@dataclass
class StageKeys:
    """Computes keys from one snapshot of the project's code.

    Args:
        recipe: As read and overridden.
        dag: Its stages.
        workspace: Where the project's code lies.
        ledger: Knows which verifiers a table of problems names.

    """

    recipe: Recipe
    dag: Dag
    workspace: Workspace
    ledger: Ledger
    _closures: dict[tuple[str, ...], CodeClosure] = field(default_factory=dict)
    _closures_by_name: dict[tuple[str, tuple[str, ...]], CodeClosure] = field(default_factory=dict)
    _reader: CodeReader | None = None
    _kept: set[str] = field(default_factory=set)
    _signatures: dict[str, dict[Path, set[Signature]]] = field(default_factory=dict)

    def closure(self, name: str, inputs: Mapping[str, str] | None = None) -> CodeClosure:
        """The first-party code that a stage can reach from its entry, and by its parameters.

        Args:
            name: The stage.
            inputs: Digest of each input, by role. A stage that verifies answers does it by the
                verifiers that its tables of problems name; without their digests, by any.

        """
        stage = self.dag.stages[name]
        entries = (stage.task.entry, *_SETUP, *_entries(stage.config))
        found = self._closure(name, entries)
        if VERIFIES not in found.symbols:
            return _with_packages_in_use(found, stage.config)
        verifiers = _verifiers(self.ledger, stage, inputs)
        found = self._closure(name, tuple(dict.fromkeys((*entries, *map(entry_of, verifiers)))))
        return _with_packages_in_use(found, stage.config, verifiers)

    def _closure(self, name: str, entries: tuple[str, ...]) -> CodeClosure:
        stage = self.dag.stages[name]
        if entries not in self._closures:
            self._closures[entries] = self._noted(self.reader.closure(*entries))
        if not self._closures[entries].loads_by_name:
            return self._closures[entries]
        if (name, entries) not in self._closures_by_name:
            given = _texts(stage.config.model_dump(mode="json"))
            found = self.reader.closure(*entries, given=given)
            self._closures_by_name[name, entries] = self._noted(found)
        return self._closures_by_name[name, entries]

    def _noted(self, closure: CodeClosure) -> CodeClosure:
        """Remember which versions of its files come to this closure."""
        known = self._signatures.setdefault(closure.digest, defaultdict(set))
        for file, signature in self.reader.signatures(closure).items():
            known[file].add(signature)
        return closure

    def look_again(self) -> None:
        """Forget what was read of the code, where it is another one by now."""
        if self._reader is not None and not self._reader.is_current():
            self._reader = None
            self._closures.clear()
            self._closures_by_name.clear()

    def files_of(self, run: StageRun) -> frozenset[Path]:
        """The first-party files that a stage may read: of its key, and of what lists parts."""
        parts = [plugin.split(".") for plugin in self.recipe.plugins]
        modules = {".".join(each[:n]) for each in parts for n in range(1, len(each) + 1)}
        read = self.closure(run.stage, run.components["inputs"]).files
        return read.union(*map(self.reader.imported, modules))

    def refuse_changed(self, run: StageRun, loaded: Mapping[str, Signature]) -> None:
        """Refuse the outputs of a stage whose code is not the one in its key.

        Args:
            run: The record of the stage run, with its key.
            loaded: First-party files that its process imported, as they were at that moment.

        Raises:
            UserError: The code changed while the stage ran.

        """
        self.look_again()
        inputs = {record.role: record.digest for record in run.inputs}
        now = self.key(run.stage, inputs).components
        changed = [each for each in differences(run.components, now) if each.component == "code"]
        found = [each.sentence for each in changed]
        if not found:
            versions = self._signatures[self.closure(run.stage, inputs).digest]
            odd = (
                file
                for file, known in versions.items()
                if loaded.get(str(file)) not in (None, *known)
            )
            found = [f"{file} was another one when it was imported" for file in odd]
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise UserError(
                f"stage '{run.stage}': its code changed while it ran: {found[0]}{more}; nothing of"
                " it was published, run again"
            )

    def key(self, name: str, inputs: Mapping[str, str]) -> Key:
        """The key that a stage has now, given the digests of its inputs."""
        stage = self.dag.stages[name]
        return stage_key(
            code=self.closure(name, inputs),
            params=stage.config.keyed(),
            inputs=inputs,
            runtime=self._runtime(stage),
        )

    def _runtime(self, stage: Stage) -> dict[str, str]:
        seed = derived_seed(self.recipe.run.seed, stage.seed_as or stage.name)
        run, declared = self.recipe.run, stage.declared
        own = library_environment(run.threads, run.kernels)
        known = {*own, *declared.environment, *declared.secrets}
        return {
            **run.keyed(),
            **stage.resources.keyed(),
            # Variables by which a person chooses how libraries compute.
            **decisive(os.environ, known),
            **declared.keyed(),
            # However it was computed: two arms of a comparison may share their randomness.
            "stage_seed": str(seed),
            "stage": stage.name,
            "task": stage.task.package,
            "python": platform.python_version(),
            "machine": platform.machine(),
        }

    def differences(self, last: StageRun, key: Key) -> list[Difference]:
        """What differs between the key of a stage's last run and the one that it has now.

        Where an older version recorded it, the first one says so, and the others are those that
        remain when its rules and names are allowed for.
        """
        found = differences(last.components, key.components)
        if same_rules(last.components, key.components):
            return found
        rules = [each for each in found if each.component == "rules"]
        return rules + real_differences(
            last.components,
            key.components,
            stage=self.dag.stages[last.stage],
            closure=self.closure(last.stage, key.components["inputs"]),
            reader=self.reader,
        )

    def files(self) -> frozenset[Path]:
        """The files below the project's root that the flow and its stages are known to read."""
        read = {self.reader.imported(self.recipe.flow)}
        read |= {self.closure(name).files for name in self.dag.stages}
        root = self.workspace.root
        return frozenset(file for files in read for file in files if root in file.parents)

    @property
    def packages(self) -> list[str]:
        """First-party code, and installed packages whose parts the recipe names."""
        stages = self.dag.stages.values()
        modules = {type(part).__module__ for stage in stages for part in parts_in(stage.config)}
        modules |= {
            name.partition(":")[0]
            for stage in stages
            for part in parts_in(stage.config)
            for name in part.functions()
        }
        heads = {module.partition(".")[0] for module in modules}
        workspace = self.workspace
        return sorted(heads.union(workspace.packages(), workspace.folders_of_modules()))

    @property
    def reader(self) -> CodeReader:
        """The project's code as it was when this planner first looked."""
        if self._reader is None:
            look_together([self])
        assert self._reader is not None
        return self._reader

    def keep_sources(self, name: str) -> None:
        """Keep the code that a stage is about to run with, for `posttrain why`."""
        closure = self.closure(name)
        if closure.digest not in self._kept:
            self._kept.add(closure.digest)
            self.reader.keep_sources(closure, self.archive)

    @property
    def archive(self) -> SourceArchive:
        """Texts of the modules that stages of this project ran with."""
        return SourceArchive(self.workspace.state / "code" / "sources")


def look_together(several: Sequence[StageKeys]) -> None:
    """Let recipes of one project share a snapshot of its code, and what was reached in it.

    Args:
        several: Keys of recipes in one workspace, whose code has not been looked at yet.

    """
    alike: dict[tuple[str, ...], list[StageKeys]] = defaultdict(list)
    for keys in several:
        alike[tuple(keys.packages)].append(keys)
    for packages, group in alike.items():
        first = group[0]
        reader = CodeReader(
            first.workspace.root,
            packages=packages,
            outside=INTERFACE,
            cache=first.workspace.state / "code",
            made=list(dict.fromkeys(path for keys in group for path in _made(keys))),
        )
        for keys in group:
            keys._reader = reader
            keys._closures, keys._signatures = first._closures, first._signatures


def _made(keys: StageKeys) -> list[Path]:
    """What runs of the recipe write: the outputs of its stages, and the generated files."""
    outputs = [path for stage in keys.dag.stages.values() for path in stage.outputs().values()]
    return [keys.workspace.output(str(path)) for path in (*outputs, *GENERATED)]


def own_packages(keys: StageKeys, name: str) -> frozenset[str]:
    """Find the packages that a stage's own code imports, without those that set its process up.

    Args:
        keys: Of the recipe.
        name: The stage.

    Returns:
        Names of distributions; of a stage that verifies answers all that are in its key.

    """
    stage, whole = keys.dag.stages[name], keys.closure(name)
    if VERIFIES in whole.symbols:
        return whole.packages
    own = keys.reader.closure(stage.task.entry, *_entries(stage.config))
    return whole.packages & own.packages


def _verifiers(ledger: Ledger, stage: Stage, inputs: Mapping[str, str] | None) -> list[type[Part]]:
    """What scores in a stage: that of its problems' sources, and what rows name themselves."""
    if inputs is None:
        return verifiers_of(ledger, None)
    digests: dict[str, list[str]] = defaultdict(list)
    for role, reference in stage.inputs.items():
        digests[reference.type] += [inputs[role]] if role in inputs else []
    of_rows, of_sources = digests[ArtifactKind.PROBLEMS], digests[ArtifactKind.VERIFIERS]
    if of_sources:
        return verifiers_of(ledger, of_sources, also=of_rows)
    return verifiers_of(ledger, of_rows)


def _with_packages_in_use(
    closure: CodeClosure, config: StageConfig, named: Sequence[type[Part]] = ()
) -> CodeClosure:
    """A closure without the packages of extras that parameters and `named` parts have no use for.

    Only what the framework imports inside of its functions may be out of use: the configs that
    lead there name it (`StageConfig.packages`). What a project's own code imports always counts.
    """
    used = {name for each in configs_in(config) for name in each.packages()}
    used |= {name for each in named for name in each.PACKAGES}
    unused = {
        name
        for name in closure.lazy.keys() & optional(FRAMEWORK) - used
        if all(module.startswith(f"{FRAMEWORK}.") for module in closure.lazy[name])
    }
    return replace(closure, packages=closure.packages - unused, unused=frozenset(unused))


def _entries(config: StageConfig) -> list[str]:
    """The classes of the parts that a config names, to which a registry leads and no import does.

    And the functions that parts name, to which nothing leads.
    """
    parts = list(parts_in(config))
    classes = {f"{type(part).__module__}:{type(part).__name__}" for part in parts}
    return sorted(classes.union(*(part.functions() for part in parts)))


def _texts(value: object) -> list[str]:
    """All text in resolved parameters, which may name modules that a stage imports."""
    if isinstance(value, Mapping):
        return [text for each in value.values() for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []
