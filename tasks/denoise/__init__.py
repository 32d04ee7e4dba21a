"""Denoise: a policy of masked diffusion from nothing, taught by verified traces."""

from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rollouts.engines.engine import Engine
from posttrain.stage.errors import UserError
from posttrain.stage.slots import parts_in
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task, Vocabulary
from tasks.denoise.config import DenoiseConfig

_BYTES_AND_SPECIAL = 260
_LEARNED = (ArtifactKind.CHECKPOINT, ArtifactKind.REWARD_MODEL)


def _vocabulary(stage: Stage) -> Vocabulary:
    """A tokenizer that is trained has as many tokens as it may have, or fewer."""
    config = stage.config
    assert isinstance(config, DenoiseConfig)
    return Vocabulary(_BYTES_AND_SPECIAL, config.vocab_size)


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse whoever would read the policy, or one that was made of it, from left to right.

    It is a plain checkpoint, so that nothing else would tell: the answers would be of no use.
    """
    unmasking = {stage.name}
    for name in dag.order():
        reader = dag.stages[name]
        read = reader.inputs.values()
        if not any(
            each.type is ArtifactKind.CHECKPOINT and each.stage in unmasking for each in read
        ):
            continue
        if remedy := _read_in_order(reader):
            raise UserError(
                f"{name}: the policy of {stage.name} unmasks its answers, and read token by token"
                f" it says nothing of use; {remedy}"
            )
        if ArtifactKind.CHECKPOINT in (port.type for port in reader.task.outputs.values()):
            unmasking.add(name)


def _read_in_order(reader: Stage) -> str | None:
    """What to do about a stage that would not read masks; None where it does."""
    config, name = reader.config, reader.name
    learns = any(port.type in _LEARNED for port in reader.task.outputs.values())
    if learns and not isinstance(config, RlConfig):
        return f"only RL can go on from it, so connect another policy to {name}"
    engines = [part for part in parts_in(config) if isinstance(part, Engine)]
    if not engines:
        return f"{name} has no engine that does, so connect another policy to it"
    if not all(engine.UNMASKS for engine in engines):
        return f"set the engine of {name} to masked_diffusion"
    return None


TASK = Task(
    package="tasks.denoise",
    config=DenoiseConfig,
    inputs={"traces": Port(ArtifactKind.COMPLETIONS, "verified worked solutions")},
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "mask predictor and its tokenizer"),
        "curve": Port(ArtifactKind.CURVE, "loss, gradient norm and learning rate per step"),
    },
    refuse=_refuse,
    vocabulary=_vocabulary,
)
