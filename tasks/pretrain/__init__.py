"""Pretrain: a base model from scratch, or more training of one on a declared mixture."""

from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task, Vocabulary
from tasks.pretrain.config import PretrainConfig

_BYTES_AND_SPECIAL = 259


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse adapters of a model that begins from nothing."""
    config = stage.config
    assert isinstance(config, PretrainConfig)
    if config.learner.lora and "policy" not in stage.inputs:
        raise UserError(
            f"{stage.name}.learner.lora: adapters change a model that is there, and this one begins"
            f" from nothing; leave learner.lora out, or connect {stage.name}.inputs.policy"
        )


def _vocabulary(stage: Stage) -> Vocabulary:
    """A tokenizer that is trained has as many tokens as it may have, or fewer."""
    config = stage.config
    assert isinstance(config, PretrainConfig)
    return Vocabulary(_BYTES_AND_SPECIAL, config.vocab_size)


TASK = Task(
    package="tasks.pretrain",
    config=PretrainConfig,
    inputs={
        "corpus": Port(ArtifactKind.COMPLETIONS, "raw problems with worked solutions, unverified"),
        "policy": Port(
            ArtifactKind.CHECKPOINT, "model to go on from (mid-training)", optional=True
        ),
    },
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "base model and tokenizer"),
        "curve": Port(ArtifactKind.CURVE, "loss, gradient norm and learning rate per step"),
    },
    parallel=True,
    refuse=_refuse,
    vocabulary=_vocabulary,
)
