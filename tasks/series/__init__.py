"""Series: points along a run of RL, on held-out problems, learned again from its rollouts."""

from posttrain.learning.rl.config import RlConfig
from posttrain.stage.errors import UserError
from posttrain.stage.identity import identity
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.series.config import SeriesConfig

_LEARNED_WITH = ("policy", "reference", "episodes", "rehearsals")
"""Ports of a run that its learner reads."""


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse another run than the one whose rollouts are connected."""
    assert isinstance(stage.config, SeriesConfig)
    made_by = dag.stages.get(stage.inputs["rollouts"].stage or "")
    if made_by is None or not isinstance(made_by.config, RlConfig):
        return
    name = made_by.name
    if identity(stage.config.run) != identity(made_by.config):
        raise UserError(
            f"{stage.name}.run: it learns again from the rollouts of {name}, whose parameters are"
            f" others; say under {stage.name}.run what stands under {name}, without its engine and"
            " inputs"
        )
    if (stage.seed_as or stage.name) != (made_by.seed_as or name):
        raise UserError(
            f"{stage.name}: it learns again what {name} did, in the same order; add"
            f" seed_as: {made_by.seed_as or name}"
        )
    wired = dict.fromkeys((*stage.inputs, *made_by.inputs))
    for port in (each for each in wired if each.partition(".")[0] in _LEARNED_WITH):
        if stage.inputs.get(port) != made_by.inputs.get(port):
            raise UserError(
                f"{stage.name}.inputs.{port}: {name} has {made_by.inputs.get(port, 'none')} there;"
                " connect what it has"
            )


TASK = Task(
    package="tasks.series",
    config=SeriesConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "policy that the run started from"),
        "rollouts": Port(ArtifactKind.ROLLOUTS, "what the run learned from"),
        "run_report": Port(ArtifactKind.REPORT, "the run's own, which names the weights it led to"),
        "reference": Port(
            ArtifactKind.CHECKPOINT,
            "the run's reference, where it had one; else the policy that it started from",
            optional=True,
        ),
        "episodes": Port(
            ArtifactKind.ROLLOUTS, "the run's stored episodes, where it had any", optional=True
        ),
        "rehearsals": Port(
            ArtifactKind.COMPLETIONS, "the run's rehearsals, by name", many=True, optional=True
        ),
        "problems": Port(ArtifactKind.PROBLEMS, "held-out problems"),
        "verifiers": Port(
            ArtifactKind.VERIFIERS, "what scores problems that name no verifier", optional=True
        ),
        "reward_model": Port(ArtifactKind.REWARD_MODEL, "the proxy", own_tokenizer=True),
    },
    outputs={"curve": Port(ArtifactKind.CURVE, "proxy, gold and divergence at each point")},
    refuse=_refuse,
)
