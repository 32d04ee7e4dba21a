"""The inputs of a stage that learns from pairs, and which of them go together."""

from collections.abc import Mapping

from posttrain.data.pair_builders.base import PairBuilder
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Port, Stage, refuse_other_than_one

PAIR_PORTS: Mapping[str, Port] = {
    "samples": Port(ArtifactKind.COMPLETIONS, "several judged samples per problem", optional=True),
    "reference_samples": Port(
        ArtifactKind.COMPLETIONS,
        "judged samples of another policy or of a teacher, beside them or against them",
        optional=True,
    ),
    "pairs": Port(ArtifactKind.PAIRS, "ready pairs, in place of samples", optional=True),
    "earlier_pairs": Port(
        ArtifactKind.PAIRS, "pairs of earlier rounds, learned from as well", many=True
    ),
}


def refuse_pair_ports(stage: Stage, builder: PairBuilder) -> None:
    """Refuse inputs of which a stage cannot make its pairs.

    Args:
        stage: Has `PAIR_PORTS`.
        builder: What sets samples against each other.

    Raises:
        UserError: There are two origins of pairs or none, or the builder lacks what it needs.

    """
    refuse_other_than_one(stage, "samples", "pairs")
    where, beside = f"{stage.name}.inputs", "reference_samples" in stage.inputs
    if beside and "samples" not in stage.inputs:
        raise UserError(
            f"{where}.reference_samples: ready pairs have both sides; connect samples in place of"
            " pairs, or write reference_samples: null"
        )
    if "reference_samples" in builder.NEEDS and not beside and "samples" in stage.inputs:
        raise UserError(
            f"{where}: the pair builder {builder.kind} sets samples against those of a reference,"
            " and none are connected; connect reference_samples"
        )
