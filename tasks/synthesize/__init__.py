"""Synthesize: problems with reference answers, and worked solutions of a teacher, all verified."""

from posttrain.learning.rewards.references import refuse_unread_rows
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.synthesize.config import SynthesizeConfig


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse files with rows that are no problems, or answers that their verifier cannot read."""
    assert isinstance(stage.config, SynthesizeConfig)
    refuse_unread_rows(stage, stage.config.sources)


TASK = Task(
    package="tasks.synthesize",
    config=SynthesizeConfig,
    inputs={
        "files": Port(ArtifactKind.SOURCE, "local files of the sources", many=True, optional=True)
    },
    outputs={
        "problems": Port(ArtifactKind.PROBLEMS, "problems to train on"),
        "heldout": Port(ArtifactKind.PROBLEMS, "problems to evaluate on; no prompt is in both"),
        "verifiers": Port(ArtifactKind.VERIFIERS, "what scores the problems of each source"),
        "corpus": Port(ArtifactKind.COMPLETIONS, "every worked solution, right and wrong"),
        "traces": Port(ArtifactKind.COMPLETIONS, "solutions that the verifier accepted"),
        "rejected": Port(ArtifactKind.DROPPED, "solutions that it did not, with the reason"),
    },
    refuse=_refuse,
)
