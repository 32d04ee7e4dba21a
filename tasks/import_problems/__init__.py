"""Import problems: rows to evaluate on, all of them; nothing is made, solved or trained on."""

from posttrain.learning.rewards.references import refuse_unread_rows
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.import_problems.config import ImportProblemsConfig


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse files with rows that are no problems, or answers that their verifier cannot read."""
    assert isinstance(stage.config, ImportProblemsConfig)
    refuse_unread_rows(stage, stage.config.sources)


TASK = Task(
    package="tasks.import_problems",
    config=ImportProblemsConfig,
    inputs={
        "files": Port(ArtifactKind.SOURCE, "local files of the sources", many=True, optional=True)
    },
    outputs={
        "problems": Port(ArtifactKind.PROBLEMS, "problems to evaluate on"),
        "verifiers": Port(ArtifactKind.VERIFIERS, "what scores the problems of each source"),
    },
    refuse=_refuse,
)
