"""RL of a policy of masked diffusion: taught from nothing, then reinforced."""

from posttrain.pipeline.recipe import FlowBuilder
from tasks.curate import TASK as CURATE
from tasks.denoise import TASK as DENOISE
from tasks.evaluate import TASK as EVALUATE
from tasks.rl import TASK as RL
from tasks.synthesize import TASK as SYNTHESIZE


def declare(build: FlowBuilder) -> None:
    """Synthesize, curate, learn to predict masks, reinforce, evaluate."""
    raw = build.stage("synthesize", SYNTHESIZE)
    data = build.stage(
        "curate", CURATE, problems=raw["problems"], heldout=raw["heldout"], traces=raw["traces"]
    )
    base = build.stage("denoise", DENOISE, traces=data["traces"])
    rl = build.stage("rl", RL, policy=base["policy"], problems=data["problems"])
    policies = {"denoise": base["policy"], "rl": rl["policy"]}
    build.stage("evaluate", EVALUATE, problems=raw["heldout"], policies=policies)
