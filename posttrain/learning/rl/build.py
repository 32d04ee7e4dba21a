"""Put a learner together: optimizer, reference and critic, as the recipe asks for them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.load import Policy
from posttrain.learning.models.memory import check_training_memory
from posttrain.learning.rl.beside import build_beside
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.critic import Critic
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.masked_passes import passes_under, start_mask
from posttrain.learning.rl.reference_policy import PolicyWithoutAdapters, own_reference
from posttrain.learning.rl.turn_learner import build_turn_learner
from posttrain.learning.training.prepare import (
    check_quiet,
    prepare_for_training,
    without_dropout,
)
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.learning.training.router_loss import RouterLoss


def build_learner(
    policy: Policy,
    config: RlConfig,
    context: StageContext,
    *,
    inputs: Mapping[str, Path],
) -> PolicyLearner:
    """Put a learner around the policy as it is.

    Args:
        policy: The policy that learns, in place.
        config: The stage's config.
        context: Device, seed and scratch folder.
        inputs: Of the stage by port: `reference`, a policy to measure a divergence from, which is
            this one as it is where none is connected; `episodes`, ROLLOUTS that are learned from
            before any is drawn; a table for each rehearsal.

    Returns:
        The learner, one of several where the context has several processes.

    Raises:
        UserError: The reference is of no use, or does not fit.

    """
    reference, episodes = inputs.get("reference"), inputs.get("episodes")
    if reference is not None and not config.algorithm.uses_reference:
        raise UserError(
            "rl: a reference is connected but the algorithm has no kl, so it would change nothing;"
            " set algorithm.regularizers.kl or leave the reference out"
        )
    # All start from plain weights, so they are copied before an adapter is attached.
    kept = own_reference(policy, config, context, reference)
    mask = start_mask(policy, config)
    critic = None if config.algorithm.critic is None else Critic(policy.model, config.critic)
    turn_learner = build_turn_learner(policy, config, context, episodes)
    trainable = prepare_for_training(policy.model, config.learner, seed=context.seed)
    if config.algorithm.uses_reference and kept is None:
        assert trainable.adapter is not None
        kept = PolicyWithoutAdapters(trainable.adapter, config.reference)
    # Dropout would make the trainer's log-probabilities differ from the engine's.
    without_dropout(policy.model)
    policy.model.train(mode=config.learner.activation_checkpointing)
    if config.learner.activation_checkpointing:
        check_quiet(policy.model)
    optimizer = build_optimizer(policy.model, config.optimization, seed=context.seed)
    check_training_memory(optimizer, device=context.device)
    passes = passes_under(mask)(
        trainable=trainable,
        reference=kept,
        critic=critic,
        config=config,
        pad=int(policy.tokenizer.pad_token_id),
        device=context.device,
        turn_learner=turn_learner,
    )
    learner = PolicyLearner(passes=passes, optimizer=optimizer, scratch=context.scratch)
    if config.learner.router_loss is not None:
        passes.router = _router_loss(policy, config.learner.router_loss)
    learner.beside = build_beside(policy, passes, inputs, seed=context.seed)
    if context.processes == 1:
        return learner
    from posttrain.learning.rl.sharded import in_shards

    return in_shards(learner, seed=context.seed)


def _router_loss(policy: Policy, coefficient: float) -> "RouterLoss":
    from posttrain.learning.training.router_loss import RouterLoss

    return RouterLoss.of(policy.model, coefficient)
