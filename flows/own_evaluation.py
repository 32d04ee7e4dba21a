"""From problems and a model that somebody brings to what the model can do on them."""

from posttrain.pipeline.recipe import FlowBuilder
from tasks.evaluate import TASK as EVALUATE
from tasks.import_model import TASK as IMPORT_MODEL
from tasks.import_problems import TASK as IMPORT_PROBLEMS


def declare(build: FlowBuilder) -> None:
    """Import a model and problems, and evaluate the model on all of them; nothing is trained."""
    problems = build.stage("import_problems", IMPORT_PROBLEMS)["problems"]
    base = build.stage("import_model", IMPORT_MODEL)
    build.stage("evaluate", EVALUATE, problems=problems, policies={"base": base["policy"]})
