"""Import pairs: preferences that somebody else made, as training and held-out pairs."""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.import_pairs.config import ImportPairsConfig

TASK = Task(
    package="tasks.import_pairs",
    config=ImportPairsConfig,
    inputs={"files": Port(ArtifactKind.SOURCE, "the file of pairs", many=True)},
    outputs={
        "pairs": Port(ArtifactKind.PAIRS, "the pairs, each once, in the order of the file"),
        "report": Port(ArtifactKind.REPORT, "what is in the file: doubles, contradictions, scores"),
    },
)
