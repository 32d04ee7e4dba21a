"""On-policy rounds: sample from the policy as it is, score, build pairs, train, and again."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from posttrain.data.schemas import PAIRS
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.load import weights_digest
from posttrain.learning.preference.config import PreferenceConfig, ReferenceMixture
from posttrain.learning.preference.frozen_policy import FrozenPolicy
from posttrain.learning.preference.round_pairs import RoundQuestions as RoundQuestions
from posttrain.learning.preference.round_pairs import draw_pairs, read_pairs
from posttrain.learning.preference.training import PairReference, learn
from posttrain.learning.rewards.port_models import PortModels
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.progress import Progress, run_identity
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.learning.models.load import Policy


@dataclass
class RoundLog:
    """What each finished round was like, and the steps made so far; part of a checkpoint."""

    rounds: list[dict[str, float]] = field(default_factory=list)
    num_steps: int = 0

    def state_dict(self) -> dict[str, Any]:
        """All rounds so far."""
        return {"rounds": self.rounds, "num_steps": self.num_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from an earlier attempt."""
        self.rounds, self.num_steps = list(state["rounds"]), int(state["num_steps"])


def asking(
    config: PreferenceConfig, inputs: Mapping[str, Path], context: StageContext
) -> PreferenceConfig:
    """Let the oracle ask the models that are connected.

    Args:
        config: Of the stage.
        inputs: By port, such as `reward_models.helpful`.
        context: With the device that models go to.

    Returns:
        The same config, whose oracle may be asked.

    """
    if config.oracle is None:
        return config
    models = PortModels(inputs, device=context.device)
    return config.model_copy(update={"oracle": config.oracle.asking(models)})


def run_rounds(
    trainable: Trainable,
    policy: "Policy",
    asked: RoundQuestions,
    *,
    initial: FrozenPolicy,
    config: PreferenceConfig,
    context: StageContext,
    curve: Curve,
) -> tuple[RoundLog, pl.DataFrame]:
    """Run all rounds, from the one that a killed attempt was in.

    Args:
        trainable: The policy's model, ready for training.
        policy: Model and tokenizer.
        asked: What is sampled, the same in each round, and what a teacher answered.
        initial: The policy as it was before the first round.
        config: Sampling, pairs, algorithm, number of rounds.
        context: Of the stage: seed, scratch folder, notes.
        curve: Takes the metrics of every step.

    Returns:
        The log of the rounds; and their pairs, PAIRS.

    Raises:
        UserError: There are fewer than two problems.

    """
    if len(asked.problems) < 2:
        raise UserError(
            "preference: rounds sample problems whose pairs are not held out, and fewer than two"
            " are left; connect more problems, or lower pairs.heldout_fraction"
        )
    log, tables = RoundLog(), list[pl.DataFrame]()
    weights = weights_digest(policy.model)
    identity = run_identity(config, seed=context.seed, weights=weights, **asked.digests)
    checkpointer = Checkpointer(
        context.scratch / "rounds",
        every=1,
        config=config.learner.checkpoints.model_copy(update={"keep": 1}),
        identity=identity,
        note=context.note,
    )
    progress = Progress(trainable.parts() | {"curve": curve, "rounds": log}, checkpointer)
    done = progress.restore(context.device)
    sampling = config.sampling
    opened = open_engine(sampling.engine, policy, batch_size=sampling.batch_size)
    with closing(checkpointer), opened as engine:
        for number in range(1, config.rounds + 1):
            inner = _within_round(context, number)
            if number <= done:
                tables.append(read_pairs(inner.scratch))
                continue
            engine.update(number)
            pairs, facts = draw_pairs(
                engine, policy, asked, initial=initial, config=config, context=inner
            )
            tables.append(pairs)
            taught = pl.concat(tables) if config.accumulate else pairs
            curve.begin_after(log.num_steps)
            if len(taught):
                log.num_steps += learn(
                    trainable,
                    policy,
                    taught,
                    reference=_reference(config, initial, FrozenPolicy.of(policy.model)),
                    config=config,
                    context=inner,
                    curve=curve,
                )
            else:
                context.note(f"round {number} gave no pair: no samples were scored apart")
            log.rounds.append(facts)
            progress.save(number)
    return log, pl.concat([each.select(list(PAIRS)) for each in tables])


def _within_round(context: StageContext, number: int) -> StageContext:
    """The context of a round: a folder and a seed of its own."""
    return replace(
        context,
        scratch=context.scratch / f"round-{number:03d}",
        # With one seed for all, an unchanged policy would draw the same samples again.
        seed=purpose_seed(context.seed, "round", number),
    )


def _reference(
    config: PreferenceConfig, initial: FrozenPolicy, present: FrozenPolicy
) -> PairReference:
    """What a round compares with: the first policy, that at its start, or a mixture of both."""
    if isinstance(config.reference, ReferenceMixture):
        return PairReference(present, initial, config.reference.initial)
    return PairReference(initial if config.reference == "initial" else present)
