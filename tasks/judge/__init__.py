"""Judge: ask components of a reward about stored answers, and keep what they say."""

from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task, refuse_unserved_ports
from tasks.judge.config import JudgeConfig

_ASKED = {"reward_models": "reward.reward_model", "traces": "curate.traces"}
"""Ports of the components, each with what a recipe may connect."""


def _refuse(stage: Stage, dag: Dag) -> None:  # noqa: ARG001 - every task is given both
    """Refuse a component without its model, and a model that no component asks."""
    config = stage.config
    assert isinstance(config, JudgeConfig)
    asked = {port: name for name, part in config.components.items() for port in part.ports()}
    refuse_unserved_ports(stage, "components", asked, _ASKED)


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
