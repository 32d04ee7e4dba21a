"""Improve a policy on problems that it solves sometimes, by the verifiers' reward."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from posttrain.attempts import make_prompts, problems_of
from posttrain.data.tables import read_table
from posttrain.errors import UserError
from posttrain.models.checkpoint import Checkpointer
from posttrain.models.load import Policy, load_policy, save_policy, weights_digest
from posttrain.models.optim import build_optimizer
from posttrain.models.tokenizer import check_same_tokenizer
from posttrain.pipeline.context import StageContext
from posttrain.records import PROBLEMS, SOLVE_RATES
from posttrain.sampling.torch_engine import TorchSampler
from posttrain.training.curve import Curve
from tasks.rl.config import RlConfig
from tasks.rl.curriculum import start_curriculum
from tasks.rl.learner import Learner
from tasks.rl.loop import Practice, train
from tasks.rl.rollout import RolloutStore

_WINDOW = 5
"""Steps at either end over which the reward is averaged for the stage's own metrics."""


def run(
    config: RlConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Load policy, problems and solve rates; train; save policy, rollouts and curve."""
    table = read_table(inputs["problems"], PROBLEMS)
    problems = problems_of(table)
    policy = load_policy(inputs["policy"], device=context.device)
    before = weights_digest(policy.model)
    curriculum = start_curriculum(
        table,
        read_table(inputs["solve_rates"], SOLVE_RATES),
        policy=before,
        draw=config.problems_per_step,
        where=str(inputs["solve_rates"]),
    )
    practice = Practice(
        problems=problems,
        prompts=make_prompts(policy.tokenizer, problems),
        curriculum=curriculum,
        learner=_learner(policy, config, inputs, context),
        curve=Curve(context),
        store=RolloutStore(context.scratch),
    )
    sampler = TorchSampler(policy.model, policy.tokenizer)
    identity = {"config": _digest(config), "policy": before}
    checkpointer = Checkpointer(
        context.scratch, every=config.checkpoint_every, identity=identity, note=context.note
    )
    train(practice, sampler, config=config, context=context, checkpointer=checkpointer)

    if weights_digest(policy.model) == before:
        raise UserError(
            f"rl: the policy is unchanged after {config.steps} steps, as no group's rewards"
            " differed; take problems that it solves sometimes, or a larger group_size"
        )
    save_policy(policy.model, policy.tokenizer, outputs["policy"])
    num_rollouts = practice.store.merge(outputs["rollouts"])
    practice.curve.write(outputs["curve"])
    return _metrics(practice.curve, config.steps) | {"rl/num_rollouts": float(num_rollouts)}


def _learner(
    policy: Policy, config: RlConfig, inputs: Mapping[str, Path], context: StageContext
) -> Learner:
    """The optimiser, and the reference where a KL coefficient asks for one."""
    reference = None
    if config.kl_coefficient > 0:
        loaded = load_policy(inputs.get("reference", inputs["policy"]), device=context.device)
        check_same_tokenizer(policy.tokenizer, loaded.tokenizer, where="rl.inputs.reference")
        reference = loaded.model
    elif "reference" in inputs:
        raise UserError(
            "rl: a reference is connected but kl_coefficient is 0, so it would change nothing;"
            " set kl_coefficient or leave the reference out"
        )
    optimizer = build_optimizer(
        policy.model, kind=config.optimizer, learning_rate=config.learning_rate
    )
    return Learner(
        model=policy.model,
        optimizer=optimizer,
        reference=reference,
        config=config,
        pad=int(policy.tokenizer.pad_token_id),
        device=context.device,
    )


def _metrics(curve: Curve, steps: int) -> dict[str, float]:
    window = min(_WINDOW, steps)
    names = ("reward", "length", "truncation_rate", "entropy", "yield")
    return {f"rl/{name}": curve.last(f"rl/{name}", window=window) for name in names}


def _digest(config: RlConfig) -> str:
    return hashlib.sha256(config.model_dump_json().encode()).hexdigest()
