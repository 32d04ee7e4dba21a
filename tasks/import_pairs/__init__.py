"""Import pairs: preferences that somebody else made, as training and held-out pairs."""

from posttrain.data.brought_files import refuse_unread_files
from posttrain.data.wanted_rows import JUDGED
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.import_pairs.config import ImportPairsConfig


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse files that hold no preferences."""
    assert isinstance(stage.config, ImportPairsConfig)
    refuse_unread_files(stage, stage.config.sources, JUDGED)


TASK = Task(
    package="tasks.import_pairs",
    config=ImportPairsConfig,
    inputs={"files": Port(ArtifactKind.SOURCE, "the files of pairs", many=True)},
    outputs={
        "pairs": Port(ArtifactKind.PAIRS, "the pairs, each once, in the order of the files"),
        "dropped": Port(ArtifactKind.DROPPED, "rows of no use, with the reason"),
        "report": Port(ArtifactKind.REPORT, "what is in the files: doubles, contradictions, ..."),
    },
    refuse=_refuse,
)
