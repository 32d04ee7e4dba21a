"""Preference: optimize a policy on pairs of better and worse completions, offline or in rounds."""

from typing import ClassVar, Protocol, runtime_checkable

from posttrain.data.pair_builders.ports import PAIR_PORTS, refuse_pair_ports
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task, refuse_unserved_ports
from tasks.preference.config import PreferenceConfig

_OF_ORACLES = {"reward_models": "reward.reward_model", "references": "sft.policy"}
"""Ports that oracles ask, each with what a recipe may connect."""


@runtime_checkable
class OfOneAuthor(Protocol):
    """An oracle to whom it matters who wrote what it compares.

    Apart from the base of the slot, which is in the keys of all stages that ask one.
    """

    OPPONENTS: ClassVar[frozenset[str]]
    """Values of `opponent` with which all that it rates is the policy's."""


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse two origins of pairs, or none, and rounds that cannot sample."""
    config, name = stage.config, stage.name
    assert isinstance(config, PreferenceConfig)
    refuse_pair_ports(stage, config.pairs.builder)
    if config.rounds and "problems" not in stage.inputs:
        raise UserError(
            f"{name}.rounds: rounds sample problems, and none are connected; connect"
            f" {name}.inputs.problems, or set rounds to 0"
        )
    earlier = [port for port in stage.inputs if port.startswith("earlier_pairs.")]
    if config.rounds and earlier:
        raise UserError(
            f"{name}.inputs.{earlier[0]}: rounds learn from what they draw; set rounds to 0, or"
            f" write {name}.inputs.earlier_pairs: null"
        )
    if config.opponent == "teacher" and "reference_samples" not in stage.inputs:
        raise UserError(
            f"{name}.opponent: a teacher's answers join the policy's, and none are connected; add"
            f" {name}: {{inputs: {{reference_samples: STAGE.samples}}}}"
        )
    oracle = config.oracle
    if isinstance(oracle, OfOneAuthor) and config.opponent not in oracle.OPPONENTS:
        raise UserError(
            f"{name}.opponent: oracle {oracle.kind} goes by how often the policy draws an answer,"
            f" and {config.opponent} has answers of others in the pool; set opponent to policy, or"
            f" take the oracle that it asks: {oracle.kind}.asks"
        )
    asked = {port: str(oracle.kind) for port in oracle.ports()} if oracle is not None else {}
    refuse_unserved_ports(stage, "oracle", asked, _OF_ORACLES)


TASK = Task(
    package="tasks.preference",
    config=PreferenceConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "model to start from, and the reference"),
        **PAIR_PORTS,
        "problems": Port(ArtifactKind.PROBLEMS, "what to sample in rounds", optional=True),
        "verifiers": Port(
            ArtifactKind.VERIFIERS, "what scores problems that name no verifier", optional=True
        ),
        "reward_models": Port(
            ArtifactKind.REWARD_MODEL,
            "compare the samples of rounds, for an oracle of kind model or pair_model",
            many=True,
            optional=True,
            own_tokenizer=True,
        ),
        "references": Port(
            ArtifactKind.CHECKPOINT,
            "policies whose hidden states place the samples of rounds, for an oracle of kind"
            " latent_game",
            many=True,
            optional=True,
        ),
    },
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "optimized model and its tokenizer"),
        "pairs": Port(ArtifactKind.PAIRS, "all pairs, with their split"),
        "curve": Port(ArtifactKind.CURVE, "loss, accuracy and margin per step"),
        "report": Port(ArtifactKind.REPORT, "held-out accuracy and margin, divergence, algorithm"),
    },
    parallel=True,
    refuse=_refuse,
)
