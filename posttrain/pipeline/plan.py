"""Decide, stage by stage, what is up to date: the framework's key and nothing else."""

import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from posttrain.pipeline.comparison import real_differences, same_rules
from posttrain.pipeline.determinism import make_deterministic
from posttrain.pipeline.interface import FRAMEWORK, INTERFACE
from posttrain.pipeline.judges import VERIFIES, verifier_entries
from posttrain.pipeline.recipe import Recipe
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.code import CodeClosure, CodeReader, SourceArchive, optional
from posttrain.provenance.digest import StatCache, digest_path
from posttrain.provenance.key import Difference, Key, differences, stage_key
from posttrain.provenance.ledger import Ledger
from posttrain.provenance.ledger.records import ArtifactRecord, StageRun
from posttrain.stage.config import StageConfig, configs_in
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import derived_seed
from posttrain.stage.slots import parts_in
from posttrain.stage.spec import ArtifactKind, Dag, Stage

Action = Literal["cached", "restore", "run", "pending"]

# The flags that it sets before a stage runs can change the stage's bytes.
_SETUP = f"{make_deterministic.__module__}:{make_deterministic.__name__}"


class ObjectStore(Protocol):
    """Where the bytes of published outputs are kept."""

    def has(self, md5: str) -> bool:
        """True where the object can be restored from the local cache."""


@dataclass(frozen=True)
class Decision:
    """What will happen to one stage, and why.

    cached: its outputs are in place. restore: they come back from the cache. run: it executes.
    pending: that depends on whether a stage before it makes other bytes than last time.
    """

    stage: str
    action: Action
    reasons: tuple[str, ...]
    key: Key | None = None
    known: StageRun | None = None
    seconds: float | None = None


@dataclass
class Planner:
    """Computes keys and compares them with the ledger; opens no heavy library."""

    recipe: Recipe
    dag: Dag
    workspace: Workspace
    ledger: Ledger
    stat_cache: StatCache
    store: ObjectStore
    forced: frozenset[str] = frozenset()
    _closures: dict[tuple[str, ...], CodeClosure] = field(default_factory=dict)
    _closures_by_name: dict[tuple[str, tuple[str, ...]], CodeClosure] = field(default_factory=dict)
    _reader: CodeReader | None = None
    _kept: set[str] = field(default_factory=set)

    def plan(self) -> list[Decision]:
        """Decide for every stage before anything runs, without touching the workspace."""
        decisions: dict[str, Decision] = {}
        lasting = self.ledger.history.durations(list(self.dag.stages), self.recipe.name)
        for name in self.dag.order():
            known = {
                upstream: decisions[upstream].known
                for upstream in self.dag.upstream(name)
                if decisions[upstream].action in ("cached", "restore")
            }
            decisions[name] = self._foresee(name, known, lasting.get(name))
        return [decisions[name] for name in self.dag.stages]

    def decide(self, name: str, made: Mapping[str, Mapping[str, ArtifactRecord]]) -> Decision:
        """Decide for one stage whose inputs all exist; `made` holds the outputs of those before."""
        inputs = self.input_records(name, made)
        key = self.key(name, {role: record.digest for role, record in inputs.items()})
        last = self.ledger.history.latest(name, self.recipe.name)
        if name in self.forced:
            return Decision(name, "run", ("asked for on the command line",), key)
        known = self.ledger.succeeded(key.digest)
        if known is None:
            return Decision(name, "run", self._why(last, key), key)
        if self._in_place(known):
            return Decision(name, "cached", (), key, known)
        if self._in_cache(known):
            return Decision(name, "restore", ("made before, kept in the cache",), key, known)
        return Decision(
            name, "run", ("its outputs are gone from the workspace and the cache",), key
        )

    def input_records(
        self, name: str, made: Mapping[str, Mapping[str, ArtifactRecord]]
    ) -> dict[str, ArtifactRecord]:
        """Role, digest and size of every input of a stage."""
        records: dict[str, ArtifactRecord] = {}
        for role, ref in sorted(self.dag.stages[name].inputs.items()):
            if ref.path is not None:
                digest = digest_path(ref.path, cache=self.stat_cache)
                path = _relative(ref.path, self.recipe.directory)
                records[role] = ArtifactRecord(role, ref.type, path, digest.sha256, digest.size)
            else:
                assert ref.stage is not None
                assert ref.output is not None
                source = made[ref.stage][ref.output]
                records[role] = ArtifactRecord(
                    role=role,
                    type=source.type,
                    path=source.path,
                    digest=source.digest,
                    size=source.size,
                    rows=source.rows,
                    producer=ref.stage,
                    md5=source.md5,
                )
        return records

    def closure(self, name: str, inputs: Mapping[str, str] | None = None) -> CodeClosure:
        """The first-party code that a stage can reach from its entry, and by its parameters.

        Args:
            name: The stage.
            inputs: Digest of each input, by role. A stage that verifies answers does it by the
                verifiers that its tables of problems name; without their digests, by any.

        """
        stage = self.dag.stages[name]
        entries = (stage.task.entry, _SETUP, *_entries(stage.config))
        found = self._closure(name, entries)
        if VERIFIES not in found.symbols:
            return _with_packages_in_use(found, stage.config)
        named = {role: digest for role, digest in (inputs or {}).items() if _names(stage, role)}
        verifiers = verifier_entries(self.ledger, None if inputs is None else named.values())
        found = self._closure(name, tuple(dict.fromkeys((*entries, *verifiers))))
        return _with_packages_in_use(found, stage.config)

    def _closure(self, name: str, entries: tuple[str, ...]) -> CodeClosure:
        stage = self.dag.stages[name]
        if entries not in self._closures:
            self._closures[entries] = self.reader.closure(*entries)
        if not self._closures[entries].loads_by_name:
            return self._closures[entries]
        if (name, entries) not in self._closures_by_name:
            given = _texts(stage.config.model_dump(mode="json"))
            self._closures_by_name[name, entries] = self.reader.closure(*entries, given=given)
        return self._closures_by_name[name, entries]

    @property
    def packages(self) -> list[str]:
        """First-party code, and installed packages whose parts the recipe names."""
        stages = self.dag.stages.values()
        modules = {type(part).__module__ for stage in stages for part in parts_in(stage.config)}
        heads = {module.partition(".")[0] for module in modules}
        return sorted(heads.union(self.workspace.packages()))

    @property
    def reader(self) -> CodeReader:
        """The project's code as it was when this planner first looked."""
        if self._reader is None:
            self._reader = CodeReader(
                self.workspace.root,
                packages=self.packages,
                outside=INTERFACE,
                cache=self.workspace.state / "code",
            )
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

    def outputs_in_place(self, name: str, roles: Collection[str]) -> dict[str, ArtifactRecord]:
        """Some outputs of a stage as they lie in the workspace, for `--only` and `stage run`."""
        stage = self.dag.stages[name]
        records = {}
        for role, relative in stage.outputs().items():
            if role not in roles:
                continue
            path = self.workspace.output(str(relative))
            if not path.exists():
                raise UserError(
                    f"{relative} does not exist; "
                    f"run stage '{name}' first: posttrain run --only {name}"
                )
            digest = digest_path(path, cache=self.stat_cache)
            kind = stage.task.outputs[role].type
            records[role] = ArtifactRecord(
                role, kind, str(relative), digest.sha256, digest.size, producer=name
            )
        return records

    def _foresee(
        self, name: str, known: Mapping[str, StageRun | None], seconds: float | None
    ) -> Decision:
        upstream = self.dag.upstream(name)
        open_stages = [stage for stage in upstream if known.get(stage) is None]
        if not open_stages:
            made = {stage: _by_role(run) for stage, run in known.items() if run is not None}
            decision = self.decide(name, made)
            return Decision(**{**decision.__dict__, "seconds": seconds})
        reasons: tuple[str, ...] = ()
        if name in self.forced:
            reasons = ("asked for on the command line",)
        else:
            last = self.ledger.history.latest(name, self.recipe.name)
            if last is None:
                reasons = ("it never ran",)
            else:
                key = self.key(name, last.components.get("inputs", {}))
                reasons = tuple(_sentences(self.differences(last, key)))
        if reasons:
            return Decision(name, "run", reasons, seconds=seconds)
        waits = f"if {' or '.join(open_stages)} makes other bytes than last time"
        return Decision(name, "pending", (waits,), seconds=seconds)

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

    def _why(self, last: StageRun | None, key: Key) -> tuple[str, ...]:
        if last is None:
            return ("it never ran",)
        found = _sentences(self.differences(last, key))
        return tuple(found) or ("its last attempt did not succeed",)

    def key(self, name: str, inputs: Mapping[str, str]) -> Key:
        """The key that a stage has now, given the digests of its inputs."""
        stage = self.dag.stages[name]
        return stage_key(
            code=self.closure(name, inputs),
            params=stage.config.model_dump(mode="json"),
            inputs=inputs,
            runtime=self._runtime(stage),
        )

    def _runtime(self, stage: Stage) -> dict[str, str]:
        # Two arms of a comparison may share their randomness: then the seed itself counts.
        shared = stage.seed_as and derived_seed(self.recipe.run.seed, stage.seed_as)
        return {
            **self.recipe.run.keyed(),
            **stage.resources.keyed(),
            **({} if shared is None else {"stage_seed": str(shared)}),
            # A stage's seed derives from its name, so equal work in two stages is not the same.
            "stage": stage.name,
            "task": stage.task.package,
            "python": platform.python_version(),
            "machine": platform.machine(),
        }

    def can_restore(self, known: StageRun) -> bool:
        """True where the outputs of a stage run are in place, or in the cache."""
        return self._in_place(known) or self._in_cache(known)

    def _in_cache(self, known: StageRun) -> bool:
        return all(record.md5 and self.store.has(record.md5) for record in known.outputs)

    def _in_place(self, known: StageRun) -> bool:
        for record in known.outputs:
            path = self.workspace.output(record.path)
            if not path.exists():
                return False
            if digest_path(path, cache=self.stat_cache).sha256 != record.digest:
                return False
        return True


def _with_packages_in_use(closure: CodeClosure, config: StageConfig) -> CodeClosure:
    """A closure without the packages of extras that the stage's parameters have no use for.

    Only what the framework imports inside of its functions may be out of use: the configs that
    lead there name it in `PACKAGES`. What a project's own code imports always counts.
    """
    used = {name for each in configs_in(config) for name in each.PACKAGES}
    unused = {
        name
        for name in closure.lazy.keys() & optional(FRAMEWORK) - used
        if all(module.startswith(f"{FRAMEWORK}.") for module in closure.lazy[name])
    }
    return replace(closure, packages=closure.packages - unused, unused=frozenset(unused))


def _by_role(run: StageRun) -> dict[str, ArtifactRecord]:
    return {record.role: record for record in run.outputs}


def _sentences(found: list[Difference]) -> list[str]:
    return [difference.sentence for difference in found]


def _entries(config: StageConfig) -> list[str]:
    """The classes of the parts that a config names: no import leads to them, a registry does."""
    return sorted({f"{type(part).__module__}:{type(part).__name__}" for part in parts_in(config)})


def _names(stage: Stage, role: str) -> bool:
    """Return True for an input whose rows name verifiers."""
    return stage.inputs[role].type == ArtifactKind.PROBLEMS if role in stage.inputs else False


def _texts(value: object) -> list[str]:
    """All text in resolved parameters, which may name modules that a stage imports."""
    if isinstance(value, Mapping):
        return [text for each in value.values() for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []


def _relative(path: Path, base: Path) -> str:
    try:
        return path.resolve().relative_to(base.resolve()).as_posix()
    except ValueError:
        return str(path)
