"""Teach: what a teacher says of every learned token of rows, kept for students to learn from."""

from posttrain.data.soft_targets import SOFT_TARGETS
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.teach.config import TeachConfig


def _refuse(stage: Stage, dag: Dag) -> None:  # noqa: ARG001 - see `Task.refuse`
    """Refuse no teacher, and two of them."""
    assert isinstance(stage.config, TeachConfig)
    connected, endpoint = "teacher" in stage.inputs, stage.config.endpoint is not None
    if connected and endpoint:
        raise UserError(
            f"{stage.name}: a teacher is connected and an endpoint is named, and one is asked;"
            " leave one of them out"
        )
    if not connected and not endpoint:
        raise UserError(
            f"{stage.name}: there is no teacher; connect one ({stage.name}: {{inputs: {{teacher:"
            " import_teacher.policy}}), or name an endpoint"
        )


TASK = Task(
    package="tasks.teach",
    config=TeachConfig,
    inputs={
        "rows": Port(ArtifactKind.COMPLETIONS, "rows of text that a student is to learn"),
        "policy": Port(
            ArtifactKind.CHECKPOINT,
            "the student, whose tokenizer and template the rows are read by",
        ),
        "teacher": Port(
            ArtifactKind.CHECKPOINT, "model that is asked, where no endpoint is", optional=True
        ),
    },
    outputs={"targets": Port(SOFT_TARGETS, "the teacher's likeliest tokens at each learned token")},
    refuse=_refuse,
)
