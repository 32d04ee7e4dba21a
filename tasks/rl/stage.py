"""Improve a policy on problems that it solves sometimes, by the verifiers' reward."""

import json
from collections.abc import Mapping
from pathlib import Path

from posttrain.learning.algorithms.identity import digest
from posttrain.learning.curriculum.start import read_pool
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.load import save_policy, weights_digest
from posttrain.learning.rl.build import build_learner
from posttrain.learning.rl.generation import with_limit
from posttrain.learning.rl.loop import train
from posttrain.learning.rl.method_record import checkpoint_identity, method_in_report
from posttrain.learning.rl.state import RlState, start_state
from posttrain.learning.rl.tools import open_tools
from posttrain.learning.training.prepare import load_to_train
from posttrain.stage.config import refuse_processes
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig

_WINDOW = 5
"""Steps at either end over which the reward is averaged for the stage's own metrics."""


def run(
    config: RlStageConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Load policy, problems and solve rates; train; save policy, rollouts, curve and report."""
    refuse_processes(config, context.processes, where="rl")
    policy = load_to_train(
        inputs["policy"], config.learner, device=context.device, processes=context.processes
    )
    begun = weights_digest(policy.model)
    before = policy.stored or begun
    context.note(f"algorithm {digest(config.algorithm)}")
    if config.note_on_ratio:
        context.note(config.note_on_ratio)
    config = with_limit(config, policy.model, note=context.note)
    learner = build_learner(
        policy,
        config,
        context,
        inputs=inputs,
    )
    checkpointer = Checkpointer(
        context.scratch,
        every=config.checkpoint_every,
        config=config.learner.checkpoints,
        identity=checkpoint_identity(
            config, inputs, seed=context.seed, policies={"policy": before}
        ),
        note=context.note,
    )
    pool = read_pool(
        inputs["problems"],
        inputs.get("solve_rates"),
        policy=before,
        verifiers=inputs.get("verifiers"),
    )
    with open_tools(config.engine, config.reward, policy, learner, context, inputs=inputs) as tools:
        state = start_state(config, pool, learner, *tools, context, inputs=inputs)
        train(state, context=context, checkpointer=checkpointer)

    _note_best(state, context)
    learner.finish(None if state.best is None else state.best.put_in_place)
    learner.trainable.merge()
    after = weights_digest(policy.model)
    if after == begun:
        raise UserError(
            f"rl: the policy is unchanged after {config.steps} steps, as no group's rewards"
            " differed, or the rollouts of those that did were masked; take problems that it solves"
            " sometimes, a larger group_size, or a larger max_tokens if rl/rollouts_masked is not 0"
        )
    instructed = state.rollouter.instructed
    if instructed is not None:
        instructed.leave_best(policy.tokenizer, note=context.note)
    save_policy(policy.model, policy.tokenizer, outputs["policy"])
    metrics = _finish(state, config, outputs)
    reason = state.stopping.reason if state.stopping else ""
    report = {
        **method_in_report(config),
        "policy": {"before": before, "after": after},
        "reward": {
            name.removeprefix("rl/reward/"): value
            for name, value in state.curve.metrics().items()
            if name.startswith("rl/reward/")
        },
        "stopped": reason,
        "metrics": metrics,
        **({"instructions": instructed.stream.told()} if instructed is not None else {}),
    }
    outputs["report"].write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    return metrics


def _note_best(state: RlState, context: StageContext) -> None:
    best = state.best
    if best is None:
        return
    if not best.step:
        raise UserError(
            "rl: by stop.metric no step's policy was better than the one that it started from; set"
            " stop.keep to last, or sample more problems per step if the metric is that noisy"
        )
    context.note(f"the policy is that after step {best.step}, the best that was measured")


def _finish(state: RlState, config: RlStageConfig, outputs: Mapping[str, Path]) -> dict[str, float]:
    """Write rollouts and curve; the stage's own metrics."""
    curve, steps = state.curve, state.num_steps
    for ahead, generation in enumerate(state.queue.waiting, start=1):
        state.store.add(generation.untrained(), step=steps + ahead)
    kept = state.best.step if state.best is not None else steps
    num_rollouts = state.store.merge(outputs["rollouts"], learned=kept)
    curve.write(outputs["curve"])
    window = min(_WINDOW, steps)
    names = [f"rl/{name}" for name in ("reward", "length", "truncation_rate", "entropy", "yield")]
    # Of a run in which no answer came to its end, some were never measured.
    return {name: curve.last(name, window=window) for name in names if curve.values(name)} | {
        "rl/num_rollouts": float(num_rollouts),
        "rl/num_updates": float(state.learner.num_updates),
        "rl/steps": float(steps),
        "rl/stopped_early": float(steps < config.steps),
        **({"rl/kept_steps": float(kept)} if state.best is not None else {}),
    }
