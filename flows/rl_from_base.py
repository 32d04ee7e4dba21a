"""RL from the base model, without a supervised stage between."""

from flows._beginning import begin_flow
from posttrain.pipeline.recipe import FlowBuilder
from tasks.evaluate import TASK as EVALUATE
from tasks.probe import TASK as PROBE
from tasks.rl import TASK as RL


def declare(build: FlowBuilder) -> None:
    """Synthesize, curate, pretrain or import, probe the base, reinforce it, evaluate."""
    raw, data, base, policies = begin_flow(build)
    probe = build.stage("probe", PROBE, policy=base["policy"], problems=data["problems"])
    rl = build.stage(
        "rl",
        RL,
        policy=base["policy"],
        problems=data["problems"],
        solve_rates=probe["solve_rates"],
    )
    policies = {**policies, "rl": rl["policy"]}
    build.stage("evaluate", EVALUATE, problems=raw["heldout"], policies=policies)
