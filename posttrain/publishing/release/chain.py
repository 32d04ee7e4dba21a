"""The stage runs behind a release: those that made the policy, and the one that judged it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.pipeline.execution.session import Session
from posttrain.pipeline.recipe import Recipe
from posttrain.provenance.ledger import ArtifactRecord, Ledger, StageRun
from posttrain.provenance.lineage.names import Selected, find_node
from posttrain.provenance.lineage.queries import up
from posttrain.provenance.lineage.render.as_json import as_object
from posttrain.publishing.release.canonical import public_path
from posttrain.publishing.release.config import ReleaseConfig
from posttrain.stage.artifact_kinds import kind_named
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.spec import ArtifactKind


@dataclass(frozen=True)
class Chain:
    """Stage runs in the order of the DAG, the released policy, and its evaluation."""

    recipe: Recipe
    root: Path
    stages: tuple[StageRun, ...]
    policy: ArtifactRecord
    evaluation: StageRun
    parts: Mapping[str, tuple[ArtifactRecord, ...]]
    """What artifacts carry inside, by their digest: tokenizers, chat templates, judges."""

    def members(self) -> tuple[ArtifactRecord, ...]:
        """Return what a release names in the ledger: policy and evaluation."""
        return (self.policy, *self.evaluation.outputs)

    def artifacts(self) -> list[ArtifactRecord]:
        """Every input and output, each digest once, outputs before inputs."""
        records = [record for run in self.stages for record in (*run.outputs, *run.inputs)]
        return list({(record.type, record.digest): record for record in reversed(records)}.values())

    def external(self) -> list[ArtifactRecord]:
        """Files and folders from outside of the DAG."""
        records = [
            record
            for run in self.stages
            for record in run.inputs
            if str(record.type) == ArtifactKind.SOURCE
        ]
        return list({record.digest: record for record in records}.values())

    def trained_on(self) -> list[ArtifactRecord]:
        """Tables that stages before the policy read in order to make a model."""
        makers = _before(self.stages, self.policy)
        records = [
            record
            for run in makers
            if any(str(out.type) == ArtifactKind.CHECKPOINT for out in run.outputs)
            for record in run.inputs
            if kind_named(record.type).shape == "table"
        ]
        return list({record.digest: record for record in records}.values())


def lineage_above(ledger: Ledger, chain: Chain) -> dict[str, Any]:
    """Return the graph above the policy and its evaluation, without names of hosts and logs."""
    node = find_node(ledger, chain.evaluation.id, root=chain.root, cwd=chain.root)
    graph = up(ledger, Selected(node.id, node.artifact, node.derivation), limit=None)
    nodes = []
    for each in graph.nodes.values():
        shown = as_object(each)
        shown["facts"] = {
            key: value for key, value in shown["facts"].items() if key not in ("host", "log")
        }
        shown["name"] = public_path(str(shown["name"]))
        nodes.append(shown)
    edges = sorted((edge.source, edge.target, edge.role) for edge in graph.edges)
    return {"root": graph.root, "nodes": nodes, "edges": [list(edge) for edge in edges]}


def read_chain(session: Session, config: ReleaseConfig) -> Chain:
    """The chain as the workspace has it now; refuses while anything is not up to date."""
    known = _known(session)
    session.require(config.evaluation)
    stage, _, output = config.policy.partition(".")
    if stage not in known:
        hint = nearest(stage, known)
        raise UserError(f"release.policy: there is no stage '{stage}'{hint}")
    policy = next((record for record in known[stage].outputs if record.role == output), None)
    if policy is None:
        roles = [record.role for record in known[stage].outputs]
        raise UserError(f"release.policy: {stage} has no output '{output}'{nearest(output, roles)}")
    if str(policy.type) != ArtifactKind.CHECKPOINT:
        raise UserError(f"release.policy: {config.policy} is a {policy.type}; name a checkpoint")
    needed = _upstream(session, [stage, config.evaluation])
    stages = tuple(known[name] for name in session.dag.order() if name in needed)
    evaluation = known[config.evaluation]
    if policy.digest not in {record.digest for record in evaluation.inputs}:
        raise UserError(
            f"release.evaluation: '{config.evaluation}' does not evaluate {config.policy}; "
            "connect it to the evaluation in the flow, or name another evaluation"
        )
    digests = {record.digest for run in stages for record in (*run.inputs, *run.outputs)}
    parts = session.ledger.compositions.parts_of(sorted(digests))
    return Chain(session.recipe, session.workspace.root, stages, policy, evaluation, parts)


def _known(session: Session) -> Mapping[str, StageRun]:
    decisions = session.planner.plan()
    stale = [decision.stage for decision in decisions if decision.action != "cached"]
    if stale:
        raise UserError(
            f"not up to date: {', '.join(stale)}; a release is of what the recipe says now, "
            "so posttrain run first"
        )
    return {each.stage: each.known for each in decisions if each.known is not None}


def _upstream(session: Session, names: Sequence[str]) -> set[str]:
    needed, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += session.dag.upstream(name)
    return needed


def _before(stages: Sequence[StageRun], policy: ArtifactRecord) -> list[StageRun]:
    """The stage that made `policy` and those that made what it read, and so on."""
    wanted, found = {policy.digest}, []
    for run in reversed(stages):
        if any(record.digest in wanted for record in run.outputs):
            found.append(run)
            wanted |= {record.digest for record in run.inputs}
    return found
