"""From a model that somebody brings to what benchmarks say of it."""

from posttrain.pipeline.recipe import FlowBuilder
from tasks.import_model import TASK as IMPORT_MODEL
from tasks.lm_eval import TASK as LM_EVAL


def declare(build: FlowBuilder) -> None:
    """Import a model and ask it tasks of lm-evaluation-harness; nothing is trained."""
    base = build.stage("import_model", IMPORT_MODEL)
    build.stage("lm_eval", LM_EVAL, policy=base["policy"])
