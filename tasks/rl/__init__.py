"""RL: group-relative policy gradient with the verifiers' reward."""

from posttrain.pipeline.spec import ArtifactType, Port, Task
from tasks.rl.config import RlConfig

TASK = Task(
    package="tasks.rl",
    config=RlConfig,
    inputs={
        "policy": Port(ArtifactType.CHECKPOINT, "policy to improve"),
        "problems": Port(ArtifactType.PROBLEMS, "problems to practise on"),
        "solve_rates": Port(ArtifactType.SOLVE_RATES, "how often that policy solves them"),
        "reference": Port(
            ArtifactType.CHECKPOINT,
            "policy to stay near, where kl_coefficient is above 0",
            optional=True,
        ),
    },
    outputs={
        "policy": Port(ArtifactType.CHECKPOINT, "the improved policy"),
        "rollouts": Port(ArtifactType.ROLLOUTS, "everything that the learner saw, step by step"),
        "curve": Port(ArtifactType.CURVE, "reward, length, yield and optimisation per step"),
    },
)
