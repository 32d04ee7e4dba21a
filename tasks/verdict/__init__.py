"""Verdict: whether a claim of a method holds, by what was said before its arms were run."""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.verdict.config import VerdictConfig

TASK = Task(
    package="tasks.verdict",
    config=VerdictConfig,
    inputs={
        "reports": Port(ArtifactKind.REPORT, "evaluation of all arms, by seed", many=True),
        "completions": Port(ArtifactKind.COMPLETIONS, "its samples, by seed", many=True),
        "diagnoses": Port(
            ArtifactKind.REPORT, "what was found of all arms, by seed", many=True, optional=True
        ),
        "curves": Port(ArtifactKind.CURVE, "what training measured, by arm and seed", many=True),
    },
    outputs={"verdict": Port(ArtifactKind.REPORT, "outcome, figures and the sentence")},
)
