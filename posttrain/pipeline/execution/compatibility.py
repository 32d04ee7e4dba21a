"""Refuse a stage before it costs anything: recalled data, models or a device that do not fit.

Tokenizers and chat templates are equal from the first checkpoint to the evaluation, or what a
policy learned is not what it is asked.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from posttrain.backends.terminal import open_terminal
from posttrain.pipeline.execution.parts import PLAIN
from posttrain.pipeline.hermetic.process import holds_here
from posttrain.pipeline.plan import Decision, Planner
from posttrain.pipeline.verifiers import verifier_digest
from posttrain.provenance.ledger import ArtifactRecord, Ledger
from posttrain.provenance.lineage.recalls import refuse_recalled
from posttrain.stage.config import configs_in
from posttrain.stage.errors import UserError
from posttrain.stage.files import nearest_existing
from posttrain.stage.hashing import ArtifactDigest
from posttrain.stage.needs import TERMINAL
from posttrain.stage.spec import ArtifactKind, Stage

ArtifactRecords = Sequence[ArtifactRecord]
_ONE_OF = (ArtifactKind.TOKENIZER, ArtifactKind.TEMPLATE)


def refuse_incompatible(planner: Planner, decisions: Sequence[Decision]) -> None:
    """Stop before anything runs, with the reason, if a stage of the plan could not be trusted."""
    holds_here()  # raises where POSTTRAIN_ISOLATION is not known
    refuse_other_disk(planner, decisions)
    refuse_other_device(planner, decisions)
    refuse_recalled(planner.ledger, _used(decisions))
    if planner.ledger.annotations.recalls():
        refuse_recalled(planner.ledger, _verifiers(planner, decisions))
    for decision in decisions:
        if decision.action == "run" and decision.key is not None:
            stage = planner.dag.stages[decision.stage]
            refuse_mixed(stage, models(planner.ledger, stage, _inputs(decision)))


def asking_people(planner: Planner, decisions: Sequence[Decision]) -> tuple[str, ...]:
    """Name the stages that would ask a person at the terminal.

    Args:
        planner: The plan of the recipe.
        decisions: What will happen to its stages.

    Raises:
        UserError: There are such, and this command has no terminal.

    """
    found = tuple(
        each.stage
        for each in decisions
        if each.action in ("run", "pending")
        and any(
            TERMINAL in config.reaches()
            for config in configs_in(planner.dag.stages[each.stage].config)
        )
    )
    for stage in found[:1]:
        os.close(open_terminal(f"stage '{stage}'", planner.workspace.root).descriptor)
    return found


def refuse_other_disk(planner: Planner, decisions: Sequence[Decision]) -> None:
    """Raise where outputs of stages that run lie on another file system than what is staged."""
    state = planner.workspace.state
    staged_on = _disk_of(state)
    for decision in decisions:
        if decision.action not in ("run", "pending"):
            continue
        for path in planner.dag.stages[decision.stage].outputs().values():
            folder = planner.workspace.output(str(path)).parent
            if _disk_of(folder) != staged_on:
                raise UserError(
                    f"stage '{decision.stage}': {folder} and {state} are on different file systems,"
                    " and outputs are put in their place by a rename; move one of them so that both"
                    " are on the same (the cache of DVC may be elsewhere)"
                )


def refuse_other_device(planner: Planner, decisions: Sequence[Decision]) -> None:
    """Raise where a stage that runs has values for which the recipe's device has no kernels."""
    on_cpu = planner.recipe.run.device == "cpu"
    for decision in decisions:
        if decision.action not in ("run", "pending"):
            continue
        for config in configs_in(planner.dag.stages[decision.stage].config):
            if beyond := config.beyond_device((lambda: None) if on_cpu else _capability_here):
                raise UserError(f"{decision.stage}: {beyond}")


def _capability_here() -> tuple[int, int]:
    """That of this machine's GPU; a plan made where there is none says nothing of one elsewhere."""
    import torch

    if not torch.cuda.is_available():
        return (sys.maxsize, 0)
    return min(map(torch.cuda.get_device_capability, range(torch.cuda.device_count())))


def _disk_of(folder: Path) -> int:
    """The file system that a folder is on, or will be once it is made."""
    return nearest_existing(folder).stat().st_dev


def refuse_mixed(stage: Stage, found: Mapping[str, ArtifactRecords]) -> None:
    """Raise unless the models of a stage share a tokenizer and at most one chat template."""
    for kind in _ONE_OF:
        seen: dict[str, str] = {}
        for model, parts in found.items():
            for part in parts:
                if part.type == kind and part.path != PLAIN:
                    seen.setdefault(part.digest, model)
        if len(seen) > 1:
            (one, first), (other, second) = list(seen.items())[:2]
            raise UserError(
                f"stage '{stage.name}': {first} and {second} have different {kind}s "
                f"({one[:12]} and {other[:12]}); make both from checkpoints that share one {kind}"
            )


def models(
    ledger: Ledger,
    stage: Stage,
    inputs: Mapping[str, str],
    made: Mapping[str, ArtifactRecords] | None = None,
) -> dict[str, ArtifactRecords]:
    """Parts of a stage's models by port: its inputs by digest, and what it `made` now."""
    ports = stage.task.inputs
    chosen = {
        role: digest
        for role, digest in inputs.items()
        for port in [ports.get(role.partition(".")[0])]
        if port is not None and port.type.is_directory and not port.own_tokenizer
    }
    known = ledger.compositions.parts_of(sorted(set(chosen.values()))) if chosen else {}
    found: dict[str, ArtifactRecords] = {
        f"its input '{role}'": known[digest] for role, digest in chosen.items() if digest in known
    }
    return found | {f"its output '{role}'": parts for role, parts in (made or {}).items()}


def _inputs(decision: Decision) -> Mapping[str, str]:
    assert decision.key is not None
    return decision.key.components["inputs"]


def _used(decisions: Sequence[Decision]) -> list[ArtifactRecord]:
    """What a plan would take over, and what its next stages would read."""
    records = [
        record
        for decision in decisions
        if decision.known is not None
        for record in (*decision.known.inputs, *decision.known.outputs)
    ]
    return records + [
        ArtifactRecord(role, "", f"{decision.stage}.inputs.{role}", ArtifactDigest(digest), 0)
        for decision in decisions
        if decision.known is None and decision.key is not None
        for role, digest in _inputs(decision).items()
    ]


def _verifiers(planner: Planner, decisions: Sequence[Decision]) -> list[ArtifactRecord]:
    """The verifiers that scored for stages of the plan last time, as their code is now."""
    last = [
        planner.ledger.history.latest(decision.stage, planner.recipe.name)
        for decision in decisions
        if decision.action in ("run", "pending")
    ]
    made = [output.digest for run in last if run is not None for output in run.outputs]
    asked = {
        part.path: part
        for parts in planner.ledger.compositions.parts_of(made).values()
        for part in parts
        if part.type == ArtifactKind.VERIFIER
    }
    return [
        replace(part, digest=verifier_digest(planner.keys.reader, path.partition(":")[2]))
        for path, part in sorted(asked.items())
    ]
