"""Improve a policy on problems that it solves sometimes, by the verifiers' reward."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from posttrain.data.schemas import PROBLEMS, SOLVE_RATES
from posttrain.data.tables import read_table
from posttrain.learning.algorithms.identity import digest
from posttrain.learning.algorithms.presets import PRESETS
from posttrain.learning.curriculum.base import ProblemPool
from posttrain.learning.curriculum.start import start_sampler
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.load import Policy, load_policy, save_policy, weights_digest
from posttrain.learning.rewards.config import Rewarder
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rl.buffer import Buffer, Queue
from posttrain.learning.rl.build import build_learner
from posttrain.learning.rl.drawing import Drawing
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.loop import Practice, train
from posttrain.learning.rl.stop import Stopping
from posttrain.learning.rl.store import RolloutStore
from posttrain.learning.rollouts.engines.base import Sampler
from posttrain.learning.rollouts.engines.config import open_sampler
from posttrain.learning.rollouts.scoring import make_prompts, problems_of, verifying
from posttrain.learning.training.best_weights import BestWeights
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.progress import run_identity
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.identity import identity
from tasks.rl.config import RlStageConfig

_WINDOW = 5
"""Steps at either end over which the reward is averaged for the stage's own metrics."""

# Bytes of a file that are in memory at a time.
_PIECE = 1 << 20


def run(
    config: RlStageConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Load policy, problems and solve rates; train; save policy, rollouts, curve and report."""
    policy = load_policy(inputs["policy"], device=context.device)
    before = weights_digest(policy.model)
    context.note(f"algorithm {digest(config.algorithm)}")
    learner = build_learner(policy, config, context, reference=inputs.get("reference"))
    checkpointer = Checkpointer(
        context.scratch,
        every=config.checkpoint_every,
        identity=_identity(config, inputs, context, policy=before),
        note=context.note,
    )
    # Opened on the policy as the learner left it: its precision, and with its adapters.
    with _tools(config, policy, learner, context) as tools:
        drawing = _drawing(config, inputs, policy, tools=tools, seed=context.seed, digest=before)
        practice = _practice(config, context, drawing=drawing, learner=learner)
        train(practice, config=config, context=context, checkpointer=checkpointer)

    practice.learner.finish()
    if practice.best is not None:
        _take_best(practice.best, context)
    practice.learner.trainable.merge()
    after = weights_digest(policy.model)
    if after == before:
        raise UserError(
            f"rl: the policy is unchanged after {config.steps} steps, as no group's rewards"
            " differed, or the rollouts of those that did were masked; take problems that it solves"
            " sometimes, a larger group_size, or a larger max_tokens if rl/rollouts_masked is not 0"
        )
    save_policy(policy.model, policy.tokenizer, outputs["policy"])
    metrics = _finish(practice, config, outputs)
    reason = practice.stopping.reason if practice.stopping else ""
    report = {
        "algorithm": {
            "digest": digest(config.algorithm),
            "presets": [n for n, known in PRESETS.items() if known.algorithm == config.algorithm],
            "switches": config.algorithm.model_dump(mode="json"),
        },
        "method": {"digest": digest(config), "identity": identity(config)},
        "policy": {"before": before, "after": after},
        "stopped": reason,
        "metrics": metrics,
    }
    outputs["report"].write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    return metrics


@contextmanager
def _tools(
    config: RlStageConfig, policy: Policy, learner: PolicyLearner, context: StageContext
) -> Iterator[tuple[Sampler, VerifierCache]]:
    """Open what draws, and what verifies."""
    if context.processes > 1:
        from posttrain.learning.rl.shared_drawing import shared_tools

        with shared_tools(config.engine, policy, learner, context) as tools:
            yield tools
        return
    with (
        open_sampler(config.engine, policy, ray=context.ray) as sampler,
        verifying(context.ray) as verify,
    ):
        yield sampler, verify


def _take_best(best: BestWeights, context: StageContext) -> None:
    if not best.step:
        raise UserError(
            "rl: by stop.metric no step's policy was better than the one that it started from; set"
            " stop.keep to last, or sample more problems per step if the metric is that noisy"
        )
    best.put_in_place()
    context.note(f"the policy is that after step {best.step}, the best that was measured")


def _drawing(
    config: RlStageConfig,
    inputs: Mapping[str, Path],
    policy: Policy,
    *,
    tools: tuple[Sampler, VerifierCache],
    seed: int,
    digest: str,
) -> Drawing:
    table = read_table(inputs["problems"], PROBLEMS)
    problems = problems_of(table)
    rates = inputs.get("solve_rates")
    pool = ProblemPool(
        problems=table,
        solve_rates=None if rates is None else read_table(rates, SOLVE_RATES),
        policy=digest,
        where=str(rates or inputs["problems"]),
    )
    draw = config.draw
    stream = start_sampler(draw.sampler, pool, count=config.problems_per_step, sources=draw.sources)
    return Drawing(
        problems=problems,
        prompts=make_prompts(policy.tokenizer, problems),
        stream=stream,
        sampler=tools[0],
        config=config,
        seed=seed,
        rewarder=Rewarder(config.reward, tools[1]),
    )


def _practice(
    config: RlStageConfig, context: StageContext, *, drawing: Drawing, learner: PolicyLearner
) -> Practice:
    return Practice(
        drawing=drawing,
        learner=learner,
        curve=Curve(context),
        store=RolloutStore(context.scratch),
        queue=Queue(),
        buffer=Buffer(epochs=config.updates.epochs, minibatches=config.updates.minibatches),
        stopping=None if config.stop is None else Stopping(config.stop),
        best=BestWeights(learner.trainable) if config.stop and config.stop.keep == "best" else None,
        progress=learner.progress,
    )


def _finish(
    practice: Practice, config: RlStageConfig, outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write rollouts and curve; the stage's own metrics."""
    curve, steps = practice.curve, practice.num_steps
    for ahead, generation in enumerate(practice.queue.waiting, start=1):
        practice.store.add(generation.untrained(), step=steps + ahead)
    kept = practice.best.step if practice.best is not None else steps
    num_rollouts = practice.store.merge(outputs["rollouts"], learnt=kept)
    curve.write(outputs["curve"])
    window = min(_WINDOW, steps)
    names = ("reward", "length", "truncation_rate", "entropy", "yield")
    return {f"rl/{name}": curve.last(f"rl/{name}", window=window) for name in names} | {
        "rl/num_rollouts": float(num_rollouts),
        "rl/num_updates": float(practice.learner.num_updates),
        "rl/steps": float(steps),
        "rl/stopped_early": float(steps < config.steps),
        **({"rl/kept_steps": float(kept)} if practice.best is not None else {}),
    }


def _identity(
    config: RlStageConfig, inputs: Mapping[str, Path], context: StageContext, *, policy: str
) -> dict[str, str]:
    """What a checkpoint must agree with: every field, the seed, and the inputs' content."""
    digests = {"policy": policy, "algorithm": digest(config.algorithm)}
    for name, path in inputs.items():
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        content = hashlib.sha256()
        for file in files:
            # The policy's weights are in its digest already.
            if file.is_file() and not (name == "policy" and file.suffix == ".safetensors"):
                content.update(file.name.encode())
                with file.open("rb") as stream:
                    while piece := stream.read(_PIECE):
                        content.update(piece)
        digests[f"{name}.files" if path.is_dir() else name] = content.hexdigest()
    return run_identity(config, seed=context.seed, **digests)
