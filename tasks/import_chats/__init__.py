"""Import chats: conversations and instructions that somebody brings, for SFT; no verifier asked."""

from posttrain.data.brought_files import refuse_unread_files
from posttrain.data.wanted_rows import TAUGHT
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.import_chats.config import ImportChatsConfig


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse files without conversations, and another template than rows are checked by."""
    assert isinstance(stage.config, ImportChatsConfig)
    refuse_unread_files(stage, stage.config.sources, TAUGHT)
    if (model := stage.inputs.get("policy")) is None:
        return
    for learner in dag.stages.values():
        template = getattr(learner.config, "template", None)
        learns = any(ref.stage == stage.name for ref in learner.inputs.values())
        if learns and template is not None and template.kind != "own":
            raise UserError(
                f"{learner.name}.template: {stage.name} leaves out the rows that the template of"
                f" {model.stage} does not write whole, so it must be known there; set"
                f" {model.stage}.template instead, which every later stage follows"
            )


TASK = Task(
    package="tasks.import_chats",
    config=ImportChatsConfig,
    inputs={
        "files": Port(ArtifactKind.SOURCE, "the files of conversations", many=True),
        "policy": Port(
            ArtifactKind.CHECKPOINT,
            "the model that learns them: rows that its chat template does not write are left out",
            optional=True,
        ),
    },
    outputs={
        "traces": Port(ArtifactKind.COMPLETIONS, "answers to learn; a row's parent is its line"),
        "heldout": Port(ArtifactKind.COMPLETIONS, "answers to other prompts, never learned"),
        "dropped": Port(ArtifactKind.DROPPED, "rows of no use, with the reason"),
        "report": Port(ArtifactKind.REPORT, "how each file was read, counts, and what is left out"),
    },
    refuse=_refuse,
)
