"""RL: policy gradients with the verifiers' reward, by the algorithm that the recipe names.

Every metric has a stable name, `rl/...`; `posttrain.learning.rl.metrics` lists them.
"""

from posttrain.stage.spec import ArtifactType, Port, Task
from tasks.rl.config import RlStageConfig

TASK = Task(
    package="tasks.rl",
    config=RlStageConfig,
    inputs={
        "policy": Port(ArtifactType.CHECKPOINT, "policy to improve"),
        "problems": Port(ArtifactType.PROBLEMS, "problems to practice on"),
        "solve_rates": Port(
            ArtifactType.SOLVE_RATES,
            "how often that policy solves them, where the problem sampler begins from it",
            optional=True,
        ),
        "reference": Port(
            ArtifactType.CHECKPOINT,
            "policy to stay near, where the algorithm has a kl",
            optional=True,
        ),
    },
    outputs={
        "policy": Port(ArtifactType.CHECKPOINT, "the improved policy"),
        "rollouts": Port(ArtifactType.ROLLOUTS, "everything that was drawn, step by step"),
        "curve": Port(ArtifactType.CURVE, "reward, length, yield and optimization per step"),
        "report": Port(ArtifactType.REPORT, "the algorithm by switches and digest; how it ended"),
    },
    parallel=True,
    on_ray=True,
)
