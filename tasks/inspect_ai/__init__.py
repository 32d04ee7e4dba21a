"""Benchmarks: tasks of Inspect, in a file of one's own, on a policy."""

from posttrain.data.benchmarks import BENCHMARK_DOCUMENTS, BENCHMARK_SAMPLES
from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.inspect_ai.config import InspectConfig

EVAL_LOG = ArtifactKind("eval_log", suffix=".eval")

TASK = Task(
    package="tasks.inspect_ai",
    config=InspectConfig,
    inputs={"policy": Port(ArtifactKind.CHECKPOINT, "policy to evaluate")},
    outputs={
        "report": Port(ArtifactKind.REPORT, "figures with standard errors, and what they are of"),
        "documents": Port(BENCHMARK_DOCUMENTS, "what was asked about"),
        "samples": Port(BENCHMARK_SAMPLES, "every answer and score; parents are the documents"),
        "log": Port(EVAL_LOG, "Inspect's own log, for `inspect view`, without clocks"),
    },
)
