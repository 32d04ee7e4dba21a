"""The default flow: from problems to an evaluated policy."""

from posttrain.pipeline.recipe import FlowBuilder
from tasks.curate import TASK as CURATE
from tasks.evaluate import TASK as EVALUATE
from tasks.import_model import TASK as IMPORT_MODEL
from tasks.import_reward_model import TASK as IMPORT_REWARD_MODEL
from tasks.preference import TASK as PREFERENCE
from tasks.pretrain import TASK as PRETRAIN
from tasks.probe import TASK as PROBE
from tasks.reward import TASK as REWARD
from tasks.rl import TASK as RL
from tasks.sft import TASK as SFT
from tasks.synthesize import TASK as SYNTHESIZE


def declare(build: FlowBuilder) -> None:
    """Synthesize, curate, pretrain or import, fine-tune, probe, reward, reinforce, evaluate.

    A recipe with a `preference` section optimizes on pairs of the probe's samples as well; RL still
    starts from the SFT policy, unless the recipe rewires it (and the probe that it needs). One with
    an `import_reward_model` section takes a reward model from elsewhere instead of training one.
    """
    raw = build.stage("synthesize", SYNTHESIZE)
    data = build.stage(
        "curate", CURATE, problems=raw["problems"], heldout=raw["heldout"], traces=raw["traces"]
    )
    if build.has("import_model"):
        base = build.stage("import_model", IMPORT_MODEL)
    else:
        base = build.stage("pretrain", PRETRAIN, corpus=raw["corpus"])
    sft = build.stage("sft", SFT, policy=base["policy"], traces=data["traces"])
    probe = build.stage("probe", PROBE, policy=sft["policy"], problems=data["problems"])
    if build.has("import_reward_model"):
        reward = build.stage("import_reward_model", IMPORT_REWARD_MODEL)
    else:
        reward = build.stage("reward", REWARD, policy=sft["policy"], samples=probe["samples"])
    policies = {"base": base["policy"], "sft": sft["policy"]}
    if build.has("preference"):
        preference = build.stage(
            "preference",
            PREFERENCE,
            policy=sft["policy"],
            samples=probe["samples"],
            problems=data["problems"],
        )
        policies["preference"] = preference["policy"]
    rl = build.stage(
        "rl",
        RL,
        policy=sft["policy"],
        problems=data["problems"],
        solve_rates=probe["solve_rates"],
    )
    build.stage(
        "evaluate",
        EVALUATE,
        problems=raw["heldout"],
        policies=policies | {"rl": rl["policy"]},
        reward_model=reward["reward_model"],
    )
