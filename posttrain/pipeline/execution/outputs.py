"""Put a stage's outputs in their place, and write down what they are and what they hold inside."""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from posttrain.pipeline.execution.attempt import Timings
from posttrain.pipeline.execution.compatibility import models, refuse_mixed
from posttrain.pipeline.execution.parts import ArtifactPart, with_settings
from posttrain.pipeline.execution.publish import publish
from posttrain.pipeline.execution.supervise import StageOutcome
from posttrain.pipeline.plan import Planner
from posttrain.pipeline.verifiers import verifier_digest
from posttrain.provenance.code import FRAMEWORK
from posttrain.provenance.dvc import DvcStore
from posttrain.provenance.ledger import ArtifactRecord, Composition, Ledger, StageRun
from posttrain.provenance.lineage.recalls import refuse_recalled
from posttrain.stage.declared import how_to_declare
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import digest_path


def finals_of(planner: Planner, name: str) -> dict[str, Path]:
    """Return the final path of each output of a stage, by role."""
    stage = planner.dag.stages[name]
    workspace = planner.workspace
    return {role: workspace.output(str(path)) for role, path in stage.outputs().items()}


@dataclass(frozen=True)
class OutputPublisher:
    """Publishes the outputs of stages. Safe to use from several threads.

    `reading` is held while the planner's caches are read.
    """

    planner: Planner
    ledger: Ledger
    store: DvcStore
    reading: threading.Lock

    def publish(
        self, base: StageRun, staged: Mapping[str, Path], outcome: StageOutcome, timings: Timings
    ) -> StageRun:
        """Digest the outputs, move them to their final paths and store them.

        Args:
            base: The record of the stage run so far.
            staged: Where each verified output lies now, by role.
            outcome: What the stage's process said of them.
            timings: Seconds by phase, to be added to.

        Returns:
            The complete record of the run, not yet in the ledger.

        Raises:
            UserError: If its code or an input changed while it ran, it imported code that no key
                knows, or a part of an output was recalled or does not fit the inputs'.

        """
        stage = self.planner.dag.stages[base.stage]
        finals = finals_of(self.planner, base.stage)
        with timings.phase("key"), self.reading:
            self.planner.keys.refuse_changed(base, outcome.imported)
            self._refuse_unseen(base, outcome.imported)
            self._refuse_changed_inputs(base)
        with timings.phase("digest"):
            known = self.planner.stat_cache
            digests = {role: digest_path(path, cache=known) for role, path in staged.items()}
            parts = self._parts(base, outcome)
        with timings.phase("publish"):
            publish(staged, finals)
            for role, path in staged.items():
                known.moved(path, finals[role])
        with timings.phase("store"):
            stored = self.store.store(list(finals.values()))
            for final in finals.values():
                known.settled(final)
        outputs = tuple(
            ArtifactRecord(
                role=role,
                type=stage.task.outputs[role].type,
                path=str(relative),
                digest=digests[role].sha256,
                size=digests[role].size,
                rows=outcome.rows.get(role),
                producer=base.stage,
                md5=stored[finals[role]].md5,
            )
            for role, relative in stage.outputs().items()
        )
        self.ledger.compositions.add(
            *[Composition(each, parts[each.role]) for each in outputs if each.role in parts]
        )
        return replace(
            base,
            status="succeeded",
            ended=time.time(),
            outputs=outputs,
            metrics=outcome.metrics,
            circumstances=outcome.circumstances,
            timings=dict(timings) | {f"stage.{k}": v for k, v in outcome.timings.items()},
        )

    def _refuse_unseen(self, base: StageRun, loaded: Iterable[str]) -> None:
        """Refuse what may have been made by code of the project that no key knows."""
        keys, workspace = self.planner.keys, self.planner.workspace
        root, known = workspace.root.resolve(), {file.resolve() for file in keys.files_of(base)}
        given = (ref.path for ref in self.planner.dag.stages[base.stage].inputs.values())
        places = [root / FRAMEWORK, workspace.state, *filter(None, given)]
        passed = known | {each.resolve() for each in places}
        for file in sorted(Path(each).resolve() for each in loaded):
            if root in file.parents and passed.isdisjoint((file, *file.parents)):
                shown = file.relative_to(root)
                raise UserError(
                    f"stage '{base.stage}' imported {shown}, code that its key was not seen to"
                    " reach; nothing of it was published; import it by its name, or"
                    f" {how_to_declare(base.stage, 'reads', str(shown))}"
                )

    def _refuse_changed_inputs(self, base: StageRun) -> None:
        """Refuse what may have read other bytes than those in its key."""
        refs = self.planner.dag.stages[base.stage].inputs
        for record in base.inputs:
            path = refs[record.role].path or self.planner.workspace.output(record.path)
            there = path.exists()
            if (
                not there
                or digest_path(path, cache=self.planner.stat_cache).sha256 != record.digest
            ):
                raise UserError(
                    f"stage '{base.stage}': its input {record.path} changed while it ran; nothing"
                    " of it was published, run again"
                )

    def _parts(
        self, base: StageRun, outcome: StageOutcome
    ) -> dict[str, tuple[ArtifactRecord, ...]]:
        """Parts of the outputs; refuses those that were recalled, or do not fit the inputs'."""
        stage = self.planner.dag.stages[base.stage]
        paths = stage.outputs()
        made = {
            role: tuple(self._part(part, str(paths[role])) for part in parts)
            for role, parts in self._specified(base, outcome).items()
            if parts
        }
        if made:
            refuse_recalled(self.ledger, [part for parts in made.values() for part in parts])
            inputs = {record.role: record.digest for record in base.inputs}
            refuse_mixed(stage, models(self.ledger, stage, inputs, made))
        return made

    def _specified(
        self, base: StageRun, outcome: StageOutcome
    ) -> Mapping[str, Sequence[ArtifactPart]]:
        """Parts of the outputs, verifiers with parameters where outputs or inputs tell them."""
        if all(part.digest for parts in outcome.parts.values() for part in parts):
            return outcome.parts
        known = self.ledger.compositions.parts_of([record.digest for record in base.inputs])
        verifiers = [part for parts in known.values() for part in parts if part.type == "verifier"]
        return with_settings(outcome.parts, {part.path.partition(":")[2] for part in verifiers})

    def _part(self, part: ArtifactPart, whole: str) -> ArtifactRecord:
        digest = part.digest
        if digest is None:
            with self.reading:
                digest = verifier_digest(self.planner.keys.reader, str(part.name))
        return ArtifactRecord(part.type, part.type, part.path(whole), digest, part.size)
