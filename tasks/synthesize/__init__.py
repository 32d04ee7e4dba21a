"""Synthesize: problems with reference answers, and worked solutions of a teacher, all verified."""

from posttrain.stage.spec import ArtifactType, Port, Task
from tasks.synthesize.config import SynthesizeConfig

TASK = Task(
    package="tasks.synthesize",
    config=SynthesizeConfig,
    inputs={
        "files": Port(ArtifactType.SOURCE, "local files of the sources", many=True, optional=True)
    },
    outputs={
        "problems": Port(ArtifactType.PROBLEMS, "problems to train on"),
        "heldout": Port(ArtifactType.PROBLEMS, "problems to evaluate on; no prompt is in both"),
        "corpus": Port(ArtifactType.COMPLETIONS, "every worked solution, right and wrong"),
        "traces": Port(ArtifactType.COMPLETIONS, "solutions that the verifier accepted"),
        "rejected": Port(ArtifactType.DROPPED, "solutions that it did not, with the reason"),
    },
)
