"""What a stage may see: gathered from its key, for its process to be held to."""

import contextlib
import os
import py_compile
import sys
from collections.abc import Iterable, Mapping
from importlib.util import cache_from_source, source_hash
from pathlib import Path

from posttrain.pipeline.hermetic.process import holds_here
from posttrain.pipeline.hermetic.view import StageView
from posttrain.pipeline.plan import Planner
from posttrain.pipeline.verifiers import VERIFIES
from posttrain.provenance.code import Signature
from posttrain.provenance.code.seen import signature_of
from posttrain.provenance.ledger import StageRun
from posttrain.stage.artifact_kinds import ArtifactKind
from posttrain.stage.config import configs_in
from posttrain.stage.declared import READS
from posttrain.stage.needs import BY_ROWS, ENDPOINT, PROCESSES, RAY
from posttrain.stage.spec import Stage

TEMPORARY = ".tmp"
"""Folder beside the outputs of a stage for its temporary files, which go when it has ended."""

# The flags of a compiled module (PEP 552) that names the hash of its source, and is checked by it.
_CHECKED_HASH = (3).to_bytes(4, "little")

# What was looked at, and its source, as both were then.
_compiled: dict[Path, tuple[Signature | None, Signature | None]] = {}


def view_of(
    planner: Planner,
    base: StageRun,
    inputs: Mapping[str, Path],
    *,
    staging: Path,
    scratch: Path,
    logs: Iterable[Path],
) -> StageView:
    """Gather what the process of a stage may reach.

    Args:
        planner: The plan of the recipe.
        base: The record of the stage run, with its key.
        inputs: Where each input lies, declared files among them.
        staging: Folder of its outputs.
        scratch: Folder of its checkpoints.
        logs: Files that its processes write to.

    Returns:
        Everything that counts in its key, and what its parameters declare to talk to.

    """
    stage = planner.dag.stages[base.stage]
    root = planner.workspace.root
    code = {file for file in planner.keys.files_of(base) if root in file.parents}
    compile_all(code)
    reach = {name for config in configs_in(stage.config) for name in config.reaches()}
    names = {name for config in configs_in(stage.config) for name in config.secret_names()}
    needed = _needs_of_rows(planner, base)
    reach |= needed & BY_ROWS
    if ENDPOINT in needed:
        # Which endpoint, the rows say; its key is that of one that the recipe names.
        every = (each for s in planner.dag.stages.values() for each in configs_in(s.config))
        names |= {name for config in every for name in config.secret_names()}
    joined = _clusters(stage)
    reach |= _resources(stage)
    return StageView(
        stage=stage.name,
        root=root,
        folder=planner.recipe.directory,
        inputs=tuple(inputs.values()),
        code=tuple(sorted(code)),
        packages=frozenset(base.components["packages"]),
        writes=(staging, scratch, *joined),
        temporary=staging / TEMPORARY,
        logs=tuple(logs),
        reach=frozenset(reach),
        environment={
            **{name: os.environ[name] for name in sorted(names) if name in os.environ},
            **stage.declared.present(),
        },
        held=holds_here(),
    )


def _clusters(stage: Stage) -> list[Path]:
    """Folders of the Ray cluster that a stage joins: its driver writes there."""
    if stage.resources.ray is None:
        return []
    from posttrain.backends.cluster.connection import session_folders

    return session_folders(stage.resources.ray.address)


def _resources(stage: Stage) -> set[str]:
    processes = {PROCESSES} if stage.resources.processes > 1 else set()
    return processes | ({RAY} if stage.resources.ray else set())


def _needs_of_rows(planner: Planner, base: StageRun) -> set[str]:
    """What the verifiers need that rows of problems name."""
    from posttrain.learning.rewards.verifiers.registry import VERIFIERS

    inputs = base.components["inputs"]
    if VERIFIES not in planner.keys.closure(base.stage, inputs).symbols:
        return set()
    known = planner.ledger.compositions.parts_of(list(inputs.values()))
    parts = [part for each in known.values() for part in each]
    named = {p.path.partition(":")[2] for p in parts if p.type == ArtifactKind.VERIFIER}
    kinds = {name.partition("/")[0] for name in named}
    return {need for kind in kinds if "." not in kind for need in VERIFIERS.find(kind).NEEDS}


def declared_files(inputs: Mapping[str, Path]) -> set[str]:
    """Find the roles of files that a recipe declares: the task is not given them.

    Args:
        inputs: Path by role.

    """
    return {role for role in inputs if role.partition(".")[0] == READS}


def compile_all(files: Iterable[Path]) -> None:
    """Compile modules beside their source: the stage that imports them may write nothing.

    What is compiled knows its source by content. Python's own way, by size and whole seconds, runs
    old code after an edit that keeps both.

    Args:
        files: Sources.

    """
    for file in files:
        if file.suffix == ".py":
            with contextlib.suppress(OSError):  # of a project that is read-only
                _compile(file, Path(cache_from_source(str(file))))


def _compile(source: Path, compiled: Path) -> None:
    found = signature_of(compiled)
    if found is None and sys.dont_write_bytecode:
        return
    if found is not None and _compiled.get(compiled) == (signature_of(source), found):
        return
    if found is None or not _is_of(source, compiled):
        by_content = py_compile.PycInvalidationMode.CHECKED_HASH
        py_compile.compile(str(source), quiet=2, invalidation_mode=by_content)
    _compiled[compiled] = signature_of(source), signature_of(compiled)


def _is_of(source: Path, compiled: Path) -> bool:
    """Return whether a compiled module is checked by its source's content, and is of it now."""
    with compiled.open("rb") as stream:
        head = stream.read(16)
    return head[4:8] == _CHECKED_HASH and head[8:] == source_hash(source.read_bytes())
