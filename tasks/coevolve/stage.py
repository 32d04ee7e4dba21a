"""Improve several policies on problems, each by its own reward and by what the others give it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from posttrain.learning.algorithms.identity import digest
from posttrain.learning.curriculum.start import read_pool
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.load import save_policy, weights_digest
from posttrain.learning.rl.generation import with_limit
from posttrain.learning.rl.method_record import checkpoint_identity, method_in_report
from posttrain.learning.rl.several import SeveralState, train_together
from posttrain.learning.rl.several_build import Learning, build_policies, open_members
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.prepare import load_to_train
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.schedule import NumberSchedules
from tasks.coevolve.config import SeveralConfig

_WINDOW = 5
"""Steps at the end over which figures are averaged for the stage's own metrics."""


def run(
    config: SeveralConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Load policies and problems; train; save policies, rollouts, curve and report."""
    policy = load_to_train(inputs["policy"], config.learner, device=context.device)
    context.note(f"algorithm {digest(config.algorithm)}")
    learning = build_policies(policy, config, inputs, context)
    first, *others = learning
    config = with_limit(config, first.policy.model, note=context.note)
    before = {each.name: each.begun for each in learning}
    for each in learning:
        each.learner.passes.config = config
    checkpointer = Checkpointer(
        context.scratch,
        every=config.checkpoint_every,
        config=config.learner.checkpoints,
        identity=checkpoint_identity(config, inputs, seed=context.seed, policies=before),
        note=context.note,
    )
    pool = read_pool(
        inputs["problems"],
        inputs.get("solve_rates"),
        policy=policy.stored or before[first.name],
        verifiers=inputs.get("verifiers"),
    )
    with open_members(learning, config, pool, inputs) as members:
        state = SeveralState(NumberSchedules(config), members, Curve(context), {})
        train_together(state, context=context, checkpointer=checkpointer)
        num_rollouts = state.write_rollouts(outputs["rollouts"])
    after = _finished(learning, before)
    save_policy(first.policy.model, first.policy.tokenizer, outputs["policy"])
    outputs["others"].mkdir(parents=True, exist_ok=True)
    for each in others:
        save_policy(each.policy.model, each.policy.tokenizer, outputs["others"] / each.name)
    state.curve.write(outputs["curve"])
    metrics = _metrics(state.curve, config.steps) | {"rl/num_rollouts": float(num_rollouts)}
    report = {
        **method_in_report(config),
        "policies": {name: {"before": before[name], "after": after[name]} for name in before},
        "metrics": metrics,
    }
    outputs["report"].write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    return metrics


def _finished(learning: Sequence[Learning], before: Mapping[str, str]) -> dict[str, str]:
    """Make the policies what is to be saved; their digests by name."""
    after: dict[str, str] = {}
    for each in learning:
        each.learner.finish()
        each.learner.trainable.merge()
        after[each.name] = weights_digest(each.policy.model)
    if after == before:
        raise UserError(
            "coevolve: every policy is as it was, as no group's rewards differed, or the rollouts"
            " of those that did were masked; take problems that they solve sometimes, a larger"
            " group_size, or a larger max_tokens if rl/rollouts_masked is not 0"
        )
    return after


def _metrics(curve: Curve, steps: int) -> dict[str, float]:
    window = min(_WINDOW, steps)
    names = ("reward", "length", "truncation_rate", "entropy", "yield")
    found = {f"rl/{name}": curve.last(f"rl/{name}", window=window) for name in names}
    return found | {"rl/steps": float(steps)}
