"""From a model and pairs that somebody brings to a reward model, and to a policy."""

from posttrain.pipeline.recipe import FlowBuilder
from tasks.import_model import TASK as IMPORT_MODEL
from tasks.import_pairs import TASK as IMPORT_PAIRS
from tasks.preference import TASK as PREFERENCE
from tasks.reward import TASK as REWARD


def declare(build: FlowBuilder) -> None:
    """Import a model and pairs, and train a reward model on them.

    A recipe with a `preference` section optimizes the model on the same pairs as well.
    """
    base = build.stage("import_model", IMPORT_MODEL)
    pairs = build.stage("import_pairs", IMPORT_PAIRS)
    build.stage("reward", REWARD, policy=base["policy"], pairs=pairs["pairs"])
    if build.has("preference"):
        build.stage("preference", PREFERENCE, policy=base["policy"], pairs=pairs["pairs"])
