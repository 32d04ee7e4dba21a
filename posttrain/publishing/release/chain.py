"""The stage runs behind a release: those that made the policy, and the one that judged it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.pipeline.execution.session import Session
from posttrain.pipeline.recipe import Recipe
from posttrain.provenance.ledger import ArtifactRecord, StageRun
from posttrain.publishing.release.config import ReleaseConfig
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.spec import ArtifactType

# Tables with training problems in them; a curve or a report holds none.
TABLES = (
    "problems",
    "completions",
    "solve_rates",
    "pairs",
    "rollouts",
    "turns",
    "verdicts",
    "dropped",
    "curve",
)


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
            if str(record.type) == ArtifactType.SOURCE
        ]
        return list({record.digest: record for record in records}.values())

    def trained_on(self) -> list[ArtifactRecord]:
        """Tables that stages before the policy read in order to make a model."""
        makers = _before(self.stages, self.policy)
        records = [
            record
            for run in makers
            if any(str(out.type) == ArtifactType.CHECKPOINT for out in run.outputs)
            for record in run.inputs
            if str(record.type) in TABLES
        ]
        return list({record.digest: record for record in records}.values())


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
    if str(policy.type) != ArtifactType.CHECKPOINT:
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
