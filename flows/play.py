"""A policy learns to play in a world: scripts show it how, and RL lets it play itself."""

from flows._beginning import begin_flow
from posttrain.pipeline.recipe import FlowBuilder
from tasks.evaluate import TASK as EVALUATE
from tasks.probe import TASK as PROBE
from tasks.rl import TASK as RL
from tasks.sft import TASK as SFT


def declare(build: FlowBuilder) -> None:
    """Pose problems, pretrain or import, fine-tune on played episodes, reinforce, evaluate.

    With a section `probe` the problems are attempted before RL, and drawn by what that found.
    """
    raw, data, base, policies = begin_flow(build)
    sft = build.stage("sft", SFT, policy=base["policy"], traces=data["traces"])
    known = {}
    if build.has("probe"):
        probe = build.stage("probe", PROBE, policy=sft["policy"], problems=data["problems"])
        known = {"solve_rates": probe["solve_rates"]}
    rl = build.stage("rl", RL, policy=sft["policy"], problems=data["problems"], **known)
    policies = {**policies, "sft": sft["policy"], "rl": rl["policy"]}
    build.stage("evaluate", EVALUATE, problems=raw["heldout"], policies=policies)
