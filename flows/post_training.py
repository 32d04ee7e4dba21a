"""The default flow: from problems to an evaluated policy."""

from flows._beginning import begin_flow
from posttrain.pipeline.recipe import FlowBuilder
from tasks.coevolve import TASK as COEVOLVE
from tasks.diagnose import TASK as DIAGNOSE
from tasks.evaluate import TASK as EVALUATE
from tasks.import_pairs import TASK as IMPORT_PAIRS
from tasks.import_reward_model import TASK as IMPORT_REWARD_MODEL
from tasks.preference import TASK as PREFERENCE
from tasks.probe import TASK as PROBE
from tasks.reward import TASK as REWARD
from tasks.rl import TASK as RL
from tasks.sft import TASK as SFT


def declare(build: FlowBuilder) -> None:
    """Synthesize, curate, pretrain or import, fine-tune, probe, reward, reinforce, evaluate.

    A recipe with a `preference` section optimizes on pairs of the probe's samples as well; RL still
    starts from the SFT policy, unless the recipe rewires it (and the probe that it needs). One with
    an `import_reward_model` section takes a reward model from elsewhere instead of training one.
    With both `import_model` and `pretrain` the imported model is trained on the corpus before SFT
    (mid-training), and is evaluated as `imported`. With `import_pairs` the reward model and
    `preference` learn from pairs of the user's own, in place of the probe's samples. One with a
    `coevolve` section trains several policies together too, from the SFT policy. With a `diagnose`
    section the policies are looked at beyond what the evaluation says.
    """
    raw, data, base, policies = begin_flow(build)
    sft = build.stage("sft", SFT, policy=base["policy"], traces=data["traces"])
    probe = build.stage("probe", PROBE, policy=sft["policy"], problems=data["problems"])
    pairs = {"samples": probe["samples"]}
    if build.has("import_pairs"):
        pairs = {"pairs": build.stage("import_pairs", IMPORT_PAIRS)["pairs"]}
    if build.has("import_reward_model"):
        reward = build.stage("import_reward_model", IMPORT_REWARD_MODEL)
    else:
        reward = build.stage("reward", REWARD, policy=sft["policy"], **pairs)
    policies = {**policies, "sft": sft["policy"]}
    if build.has("preference"):
        preference = build.stage(
            "preference",
            PREFERENCE,
            policy=sft["policy"],
            problems=data["problems"],
            **pairs,
        )
        policies["preference"] = preference["policy"]
    drawn = {"problems": data["problems"], "solve_rates": probe["solve_rates"]}
    if build.has("coevolve"):
        several = build.stage("coevolve", COEVOLVE, policy=sft["policy"], **drawn)
        policies["coevolve"] = several["policy"]
    rl = build.stage("rl", RL, policy=sft["policy"], **drawn)
    evaluated = build.stage(
        "evaluate",
        EVALUATE,
        problems=raw["heldout"],
        policies=policies | {"rl": rl["policy"]},
        reward_model=reward["reward_model"],
    )
    if build.has("diagnose"):
        build.stage(
            "diagnose",
            DIAGNOSE,
            policies=policies | {"rl": rl["policy"]},
            reports={"heldout": evaluated["report"]},
            completions={"heldout": evaluated["completions"]},
            reward_models={"reward": reward["reward_model"]},
            rollouts={"rl": rl["rollouts"]},
            curves={"rl": rl["curve"]},
            problems=raw["heldout"],
        )
