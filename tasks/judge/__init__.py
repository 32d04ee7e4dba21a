"""Judge: ask components of a reward about stored answers, and keep what they say."""

from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.judge.config import JudgeConfig


def _refuse(stage: Stage, dag: Dag) -> None:  # noqa: ARG001 - every task is given both
    """Refuse a component without its model."""
    config = stage.config
    assert isinstance(config, JudgeConfig)
    for name, part in config.components.items():
        for port in part.ports():
            if port not in stage.inputs:
                raise UserError(
                    f"{stage.name}.components.{name}: it asks {port}, which is not connected;"
                    f" connect it under {stage.name}.inputs"
                )


TASK = Task(
    package="tasks.judge",
    config=JudgeConfig,
    inputs={
        "samples": Port(ArtifactKind.COMPLETIONS, "answers to judge, such as a probe's"),
        "problems": Port(ArtifactKind.PROBLEMS, "the problems that they answer"),
        "verifiers": Port(
            ArtifactKind.VERIFIERS, "what scores problems that name no verifier", optional=True
        ),
        "reward_models": Port(
            ArtifactKind.REWARD_MODEL,
            "score answers, for components of kind model",
            many=True,
            optional=True,
            own_tokenizer=True,
        ),
        "traces": Port(
            ArtifactKind.COMPLETIONS, "solutions that trace_likeness compares with", optional=True
        ),
    },
    outputs={
        "verdicts": Port(ArtifactKind.VERDICTS, "what each component says of each answer, once")
    },
    refuse=_refuse,
)
