"""Diagnose: figures of what stages made, policy by policy, that no training reads."""

from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.diagnose.config import DiagnoseConfig


def _refuse(stage: Stage, dag: Dag) -> None:  # noqa: ARG001 - see `Task.refuse`
    """Refuse a diagnostic whose artifacts are not connected."""
    assert isinstance(stage.config, DiagnoseConfig)
    connected = {port.partition(".")[0] for port in stage.inputs}
    for name, each in stage.config.diagnostics.items():
        for port in sorted(each.NEEDS - connected):
            raise UserError(
                f"{stage.name}.diagnostics.{name}: {each.kind} reads {port}, and none is"
                f" connected; connect {port} under {stage.name}.inputs"
            )


def _many(kind: ArtifactKind, doc: str) -> Port:
    return Port(kind, doc, many=True, optional=True)


TASK = Task(
    package="tasks.diagnose",
    config=DiagnoseConfig,
    inputs={
        "policies": _many(ArtifactKind.CHECKPOINT, "policies to look at, the reference among them"),
        "repeats": _many(ArtifactKind.CHECKPOINT, "the same policies as another seed trained them"),
        "reward_models": Port(
            ArtifactKind.REWARD_MODEL, "reward models", many=True, optional=True, own_tokenizer=True
        ),
        "reports": _many(ArtifactKind.REPORT, "evaluations of the policies"),
        "completions": _many(ArtifactKind.COMPLETIONS, "their samples, under the same names"),
        "rollouts": _many(ArtifactKind.ROLLOUTS, "what RL learned from"),
        "curves": _many(ArtifactKind.CURVE, "what training measured"),
        "problems": Port(ArtifactKind.PROBLEMS, "problems that models are shown", optional=True),
        "verifiers": Port(
            ArtifactKind.VERIFIERS, "what scores problems that name no verifier", optional=True
        ),
    },
    outputs={"report": Port(ArtifactKind.REPORT, "figures by diagnostic, and curves to draw")},
    refuse=_refuse,
)
