"""From a model that somebody brings to what benchmarks say of it."""

from posttrain.pipeline.recipe import FlowBuilder
from tasks.import_model import TASK as IMPORT_MODEL
from tasks.inspect_ai import TASK as INSPECT_AI
from tasks.lm_eval import TASK as LM_EVAL


def declare(build: FlowBuilder) -> None:
    """Import a model and evaluate it by lm-evaluation-harness, by Inspect, or both, as a recipe
    has sections `lm_eval` and `inspect_ai`; nothing is trained.
    """
    base = build.stage("import_model", IMPORT_MODEL)
    for section, task in (("lm_eval", LM_EVAL), ("inspect_ai", INSPECT_AI)):
        if build.has(section):
            build.stage(section, task, policy=base["policy"])
