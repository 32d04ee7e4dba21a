"""The stage runs behind a release: those that made the policy, and the one that evaluated it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.pipeline.execution.session import Session
from posttrain.pipeline.recipe import Recipe
from posttrain.provenance.ledger import ArtifactRecord, Ledger, StageRun
from posttrain.provenance.lineage.names import Selected, find_node
from posttrain.provenance.lineage.queries import up
from posttrain.provenance.lineage.render.as_json import as_object
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
    """What artifacts carry inside, by their digest: tokenizers, chat templates, verifiers."""

    def members(self) -> tuple[ArtifactRecord, ...]:
        """Return what a release names in the ledger: policy and evaluation."""
        return (self.policy, *self.evaluation.outputs)

    def artifacts(self) -> list[ArtifactRecord]:
        """Every input and output, each digest once, outputs before inputs."""
        records = [record for run in self.stages for record in (*run.outputs, *run.inputs)]
        return list({(record.type, record.digest): record for record in reversed(records)}.values())

    def external(self) -> list[ArtifactRecord]:
        """Files and folders from outside of the DAG."""
        records = [record for run in self.stages for record in run.inputs]
        sources = [each for each in records if str(each.type) == ArtifactKind.SOURCE]
        return list({record.digest: record for record in sources}.values())

    def elsewhere(self) -> list[str]:
        """Paths of inputs outside of the project, which a release cannot put back in their place.

        A rebuild writes each input where the recipe looks for it, below one empty folder.
        """
        places = {each.path: self.recipe.directory / each.path for each in self.external()}
        return [n for n, place in places.items() if not place.resolve().is_relative_to(self.root)]

    def trained_on(self) -> list[ArtifactRecord]:
        """Tables that stages before the policy read in order to make a model."""
        wanted = {self.policy.digest}
        found: dict[str, ArtifactRecord] = {}
        for run in reversed(self.stages):
            if wanted.isdisjoint(record.digest for record in run.outputs):
                continue
            wanted.update(record.digest for record in run.inputs)
            if any(str(out.type) == ArtifactKind.CHECKPOINT for out in run.outputs):
                tables = [each for each in run.inputs if kind_named(each.type).shape == "table"]
                found |= {record.digest: record for record in tables}
        return list(found.values())


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


def read_chain(session: Session, *, released: str, evaluated_by: str) -> Chain:
    """The chain as the workspace has it now; refuses while anything is not up to date.

    Args:
        session: The recipe.
        released: The policy, as `stage.output`.
        evaluated_by: The stage whose report and completions decide.

    """
    known = _up_to_date(session)
    evaluation = known[session.require(evaluated_by)]
    stage, _, output = released.partition(".")
    if stage not in known:
        raise UserError(f"release.policy: there is no stage '{stage}'{nearest(stage, known)}")
    outputs = {record.role: record for record in known[stage].outputs}
    if output not in outputs:
        raise UserError(
            f"release.policy: {stage} has no output '{output}'{nearest(output, outputs)}"
        )
    policy = outputs[output]
    if str(policy.type) != ArtifactKind.CHECKPOINT:
        raise UserError(f"release.policy: {released} is a {policy.type}; name a checkpoint")
    if policy.digest not in {record.digest for record in evaluation.inputs}:
        raise UserError(
            f"release.evaluation: '{evaluated_by}' does not evaluate {released}; "
            "connect it to the evaluation in the flow, or name another evaluation"
        )
    needed = {stage, evaluated_by}
    for name in reversed(session.dag.order()):
        if name in needed:
            needed.update(session.dag.upstream(name))
    stages = tuple(known[name] for name in session.dag.order() if name in needed)
    digests = {record.digest for run in stages for record in (*run.inputs, *run.outputs)}
    parts = session.ledger.compositions.parts_of(sorted(digests))
    return Chain(session.recipe, session.workspace.root, stages, policy, evaluation, parts)


def _up_to_date(session: Session) -> Mapping[str, StageRun]:
    decisions = session.planner.plan()
    stale = [decision.stage for decision in decisions if decision.action != "cached"]
    if stale:
        raise UserError(
            f"not up to date: {', '.join(stale)}; a release is of what the recipe says now, "
            "so posttrain run first"
        )
    session.planner.refuse_absent(session.dag.stages)
    return {each.stage: each.known for each in decisions if each.known is not None}


def public_path(path: str) -> str:
    """A path without what it says of one machine."""
    return path.rpartition("/")[2] if path.startswith("/") else path
