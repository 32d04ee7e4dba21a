"""Import chats: conversations and instructions that somebody brings, for SFT; no verifier asked."""

from posttrain.data.brought_files import refuse_unread_files
from posttrain.data.wanted_rows import TAUGHT
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.import_chats.config import ImportChatsConfig


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse files that hold no conversations."""
    assert isinstance(stage.config, ImportChatsConfig)
    refuse_unread_files(stage, stage.config.sources, TAUGHT)


TASK = Task(
    package="tasks.import_chats",
    config=ImportChatsConfig,
    inputs={"files": Port(ArtifactKind.SOURCE, "the files of conversations", many=True)},
    outputs={
        "traces": Port(ArtifactKind.COMPLETIONS, "answers to learn; a row's parent is its line"),
        "heldout": Port(ArtifactKind.COMPLETIONS, "answers to other prompts, never learned"),
        "dropped": Port(ArtifactKind.DROPPED, "rows of no use, with the reason"),
        "report": Port(ArtifactKind.REPORT, "how each file was read, counts, and what is left out"),
    },
    refuse=_refuse,
)
