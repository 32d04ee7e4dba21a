"""RL: policy gradients with the verifiers' reward, by the algorithm that the recipe names.

Every metric has a stable name, `rl/...`; `posttrain.learning.rl.metrics` lists them.
"""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.rl.config import RlStageConfig

TASK = Task(
    package="tasks.rl",
    config=RlStageConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "policy to improve"),
        "problems": Port(ArtifactKind.PROBLEMS, "problems to practice on"),
        "solve_rates": Port(
            ArtifactKind.SOLVE_RATES,
            "how often that policy solves them, where the problem sampler begins from it",
            optional=True,
        ),
        "reference": Port(
            ArtifactKind.CHECKPOINT,
            "policy to stay near, where the algorithm has a kl",
            optional=True,
        ),
    },
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "the improved policy"),
        "rollouts": Port(ArtifactKind.ROLLOUTS, "everything that was drawn, step by step"),
        "curve": Port(ArtifactKind.CURVE, "reward, length, yield and optimization per step"),
        "report": Port(ArtifactKind.REPORT, "the algorithm by switches and digest; how it ended"),
    },
    parallel=True,
    on_ray=True,
)
