"""Benchmarks: tasks of lm-evaluation-harness, by name or by a YAML of one's own, on a policy."""

from posttrain.data.benchmarks import BENCHMARK_DOCUMENTS, BENCHMARK_SAMPLES
from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.lm_eval.config import LmEvalConfig

TASK = Task(
    package="tasks.lm_eval",
    config=LmEvalConfig,
    inputs={"policy": Port(ArtifactKind.CHECKPOINT, "policy to evaluate")},
    outputs={
        "report": Port(ArtifactKind.REPORT, "figures with standard errors, and what they are of"),
        "documents": Port(BENCHMARK_DOCUMENTS, "what was asked about"),
        "samples": Port(BENCHMARK_SAMPLES, "every answer and score; parents are the documents"),
    },
)
