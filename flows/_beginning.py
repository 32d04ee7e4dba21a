"""What the flows begin with alike: problems to train on, and a base model."""

from collections.abc import Mapping
from typing import NamedTuple

from posttrain.pipeline.recipe import FlowBuilder
from posttrain.stage.spec import Reference, Stage
from tasks.curate import TASK as CURATE
from tasks.import_model import TASK as IMPORT_MODEL
from tasks.pretrain import TASK as PRETRAIN
from tasks.synthesize import TASK as SYNTHESIZE


class Beginning(NamedTuple):
    """The stages that later ones build on."""

    raw: Stage
    """Problems, held-out ones, solutions and a corpus, as they came."""
    data: Stage
    """Problems and solutions that are worth training on."""
    base: Stage
    """Makes the policy that training starts from."""
    policies: Mapping[str, Reference]
    """Policies so far, parents first, for an evaluation."""


def begin_flow(build: FlowBuilder) -> Beginning:
    """Synthesize, curate, and pretrain or import.

    With both `import_model` and `pretrain` the imported model is trained on the corpus first
    (mid-training), and stands among the policies as `imported`.
    """
    raw = build.stage("synthesize", SYNTHESIZE)
    data = build.stage(
        "curate", CURATE, problems=raw["problems"], heldout=raw["heldout"], traces=raw["traces"]
    )
    policies = {}
    if build.has("import_model"):
        base = build.stage("import_model", IMPORT_MODEL)
        if build.has("pretrain"):
            policies["imported"] = base["policy"]
            base = build.stage("pretrain", PRETRAIN, policy=base["policy"], corpus=raw["corpus"])
    else:
        base = build.stage("pretrain", PRETRAIN, corpus=raw["corpus"])
    return Beginning(raw, data, base, policies | {"base": base["policy"]})
