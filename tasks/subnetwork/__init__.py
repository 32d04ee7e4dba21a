"""Subnetwork: a policy of which training moves some weights alone; the others stay."""

from posttrain.learning.models.subnetwork_file import refuse_shared_subnetwork
from posttrain.learning.training.config import LoraConfig
from posttrain.stage.config import configs_in
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.subnetwork.config import SubnetworkConfig

_TRAINED = ("policy", "policies")
"""Ports of what a stage trains, where it trains something."""


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse a subnetwork that nothing describes, half of a comparison, and adapters beside it."""
    assert isinstance(stage.config, SubnetworkConfig)
    ports = {"before", "after"} & set(stage.inputs)
    if len(ports) == 1:
        raise UserError(
            f"{stage.name}.inputs: what moved is seen from before and after, and only"
            f" {ports.pop()} is connected; connect the other one too"
        )
    if not ports and not stage.config.names:
        raise UserError(
            f"{stage.name}: nothing says which weights may move; give names, or connect before and"
            f" after under {stage.name}.inputs"
        )
    for reader in dag.stages.values():
        trained = {
            reference.stage
            for port, reference in reader.inputs.items()
            if port.partition(".")[0] in _TRAINED
        }
        adapts = any(isinstance(each, LoraConfig) for each in configs_in(reader.config))
        if stage.name in trained and adapts:
            raise UserError(
                f"{reader.name}.learner.lora leaves every weight as it is, so that none of"
                f" {stage.name} would be trained; leave lora out, or connect another policy"
            )
        if stage.name in trained:
            refuse_shared_subnetwork(reader.resources.processes, where=reader.name)


TASK = Task(
    package="tasks.subnetwork",
    config=SubnetworkConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "the model to be trained"),
        "before": Port(ArtifactKind.CHECKPOINT, "what another run started from", optional=True),
        "after": Port(ArtifactKind.CHECKPOINT, "what that run made of it", optional=True),
    },
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "the same model, with the weights that may move"),
        "report": Port(ArtifactKind.REPORT, "how many weights of each tensor may move"),
    },
    refuse=_refuse,
)
