"""From a model and answers that somebody judged to a policy, without a reward model."""

from posttrain.pipeline.recipe import FlowBuilder
from tasks.import_model import TASK as IMPORT_MODEL
from tasks.import_pairs import TASK as IMPORT_PAIRS
from tasks.preference import TASK as PREFERENCE


def declare(build: FlowBuilder) -> None:
    """Import a model and judged answers, and optimize the model on them.

    Pairs, scored lists, and with `preference: {algorithm: kto}` answers that were judged alone.
    """
    base = build.stage("import_model", IMPORT_MODEL)
    pairs = build.stage("import_pairs", IMPORT_PAIRS)
    build.stage("preference", PREFERENCE, policy=base["policy"], pairs=pairs["pairs"])
