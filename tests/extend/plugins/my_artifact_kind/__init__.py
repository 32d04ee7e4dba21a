"""A kind of artifact stands on a port of a task of one's own. In the flow:

build.stage("lengths", my_artifact_kind.TASK, problems=data["problems"])
"""

from posttrain.stage.artifact_kinds import ArtifactKind
from posttrain.stage.config import StageConfig
from posttrain.stage.spec import Port, Task


def schema():
    import polars as pl

    return pl.Schema({"id": pl.String, "parents": pl.List(pl.String), "length": pl.Int64})


LENGTHS = ArtifactKind("lengths", suffix=".parquet", shape="table", schema=schema)
PROBLEMS = Port(ArtifactKind.PROBLEMS, "what is measured")
MADE = Port(LENGTHS, "characters of every prompt")
TASK = Task("my_artifact_kind", StageConfig, {"problems": PROBLEMS}, {"lengths": MADE})
