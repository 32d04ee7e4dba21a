"""Decide, stage by stage, what is up to date: the framework's key and nothing else."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from posttrain.pipeline.recipe import Recipe
from posttrain.pipeline.stage_keys import StageKeys, own_packages
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.key import Difference, Key
from posttrain.provenance.ledger import Ledger
from posttrain.provenance.ledger.records import ArtifactRecord, StageRun
from posttrain.stage.errors import UserError, shown
from posttrain.stage.hashing import CacheName, StatCache, digest_path
from posttrain.stage.spec import Dag

Action = Literal["cached", "restore", "run", "pending", "missing"]


class ObjectStore(Protocol):
    """Where the bytes of published outputs are kept."""

    def has(self, md5: CacheName) -> bool:
        """True where the object can be restored from the local cache."""

    def remote_has(self, md5: CacheName) -> bool:
        """True where the object can be fetched from the remote."""


@dataclass(frozen=True)
class Decision:
    """What will happen to one stage, and why.

    cached: its outputs are in place. restore: they come back from the cache, or from the remote.
    run: it executes. pending: that depends on whether a stage before it makes other bytes than
    last time. missing: a file that it reads from outside the DAG is not there, and without it
    nothing can be decided.
    """

    stage: str
    action: Action
    reasons: tuple[str, ...]
    key: Key | None = None
    known: StageRun | None = None
    seconds: float | None = None
    unseen: tuple[str, ...] = ()
    """Of each file that is not there, and by whose recorded digest the stage is up to date."""


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
    committed: Mapping[str, StageRun] = field(default_factory=dict)
    """What made the outputs of each stage, as the recipe's commit says."""
    keys: StageKeys = field(init=False)

    def __post_init__(self) -> None:
        self.keys = StageKeys(self.recipe, self.dag, self.workspace, self.ledger)

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

    def own_packages(self, name: str) -> frozenset[str]:
        """Find the packages that a stage's own code imports; see `stage_keys.own_packages`."""
        return own_packages(self.keys, name)

    def decide(self, name: str, made: Mapping[str, Mapping[str, ArtifactRecord]]) -> Decision:
        """Decide for one stage; `made` holds the outputs of those before.

        A file from outside the DAG that is not there counts as the one that the committed record
        of the stage names, where that is enough to find the stage made; the decision says so.
        """
        if not (absent := self.dag.stages[name].absent()):
            return self._decide(name, made)
        if absent.keys() <= self._recorded(name).keys():
            decision = self._decide(name, made)
            if decision.action in ("cached", "restore"):
                return replace(decision, unseen=tuple(map(_counts_as_recorded, absent.values())))
        return Decision(name, "missing", tuple(absent.values()))

    def refuse_absent(self, names: Iterable[str]) -> None:
        """Refuse stages that read a file from outside the DAG which is not there.

        Args:
            names: The stages.

        Raises:
            UserError: Says of the first where it should be, and how many more there are.

        """
        absent = [each for name in names for each in self.dag.stages[name].absent().values()]
        if absent:
            more = f" (and {len(absent) - 1} more: posttrain plan)" if len(absent) > 1 else ""
            readme = self.recipe.directory / "README.md"
            where = f"; see {shown(readme)}" if readme.is_file() else ""
            raise UserError(absent[0] + where + more)

    def _decide(self, name: str, made: Mapping[str, Mapping[str, ArtifactRecord]]) -> Decision:
        inputs = self.input_records(name, made)
        key = self.keys.key(name, {role: record.digest for role, record in inputs.items()})
        last = self.ledger.history.latest(name, self.recipe.name)
        if name in self.forced:
            return Decision(name, "run", ("asked for on the command line",), key)
        known = self.ledger.succeeded(key.digest)
        if known is None:
            return Decision(name, "run", self._explain_run(name, last, key), key)
        if self._in_place(known):
            return Decision(name, "cached", (), key, known)
        gone = "its outputs are gone from the workspace and the cache"
        try:
            if not (missing := self._missing(known)):
                return Decision(name, "restore", ("made before, kept in the cache",), key, known)
            if all(md5 and self.store.remote_has(md5) for md5 in missing):
                return Decision(name, "restore", ("made before, kept in the remote",), key, known)
        except UserError as error:
            gone = f"{gone}, and {error}"
        return Decision(name, "run", (gone,), key)

    def input_records(
        self, name: str, made: Mapping[str, Mapping[str, ArtifactRecord]]
    ) -> dict[str, ArtifactRecord]:
        """Role, digest and size of every input of a stage."""
        records: dict[str, ArtifactRecord] = {}
        for role, ref in sorted(self.dag.stages[name].inputs.items()):
            if ref.path is not None and not ref.path.exists() and role in self._recorded(name):
                records[role] = self._recorded(name)[role]
            elif ref.path is not None:
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
            return replace(decision, seconds=seconds)
        if absent := self.dag.stages[name].absent():
            return Decision(name, "missing", tuple(absent.values()), seconds=seconds)
        reasons: tuple[str, ...] = ()
        if name in self.forced:
            reasons = ("asked for on the command line",)
        else:
            last = self.ledger.history.latest(name, self.recipe.name)
            if last is None:
                reasons = (self._without_result(name),)
            else:
                key = self.keys.key(name, last.components.get("inputs", {}))
                reasons = tuple(_sentences(self.keys.differences(last, key)))
        if reasons:
            return Decision(name, "run", reasons, seconds=seconds)
        waits = f"if {' or '.join(open_stages)} makes other bytes than last time"
        return Decision(name, "pending", (waits,), seconds=seconds)

    def _recorded(self, name: str) -> dict[str, ArtifactRecord]:
        """Inputs of a stage by role, as its committed record has them."""
        known = self.committed.get(name)
        return {record.role: record for record in known.inputs} if known else {}

    def _explain_run(self, name: str, last: StageRun | None, key: Key) -> tuple[str, ...]:
        if last is None:
            return (self._without_result(name),)
        found = _sentences(self.keys.differences(last, key))
        return tuple(found) or ("its last attempt did not succeed",)

    def _without_result(self, name: str) -> str:
        """Say why a stage that never succeeded has no result."""
        if self.ledger.history.executions(name, self.recipe.name, limit=1):
            return "its last attempt failed"
        return f"it never ran{' for this claim' * self.recipe.is_of_claim}"

    def can_restore(self, known: StageRun) -> bool:
        """True where the outputs of a stage run are in place, or in the cache."""
        return self._in_place(known) or not self._missing(known)

    def _missing(self, known: StageRun) -> list[CacheName | None]:
        """Outputs that the cache does not have, by their names there; None of one without."""
        names = [record.md5 for record in known.outputs]
        return [md5 for md5 in names if not md5 or not self.store.has(md5)]

    def _in_place(self, known: StageRun) -> bool:
        for record in known.outputs:
            path = self.workspace.output(record.path)
            if not path.exists():
                return False
            if digest_path(path, cache=self.stat_cache).sha256 != record.digest:
                return False
        return True


def _by_role(run: StageRun) -> dict[str, ArtifactRecord]:
    return {record.role: record for record in run.outputs}


def _counts_as_recorded(sentence: str) -> str:
    return f"{sentence.partition(';')[0]}; up to date by its digest in posttrain.lock"


def _sentences(found: list[Difference]) -> list[str]:
    return [difference.sentence for difference in found]


def _relative(path: Path, base: Path) -> str:
    try:
        return path.resolve().relative_to(base.resolve()).as_posix()
    except ValueError:
        return str(path)
