"""Coevolve: several policies trained together by RL, with an exchange between them in each step.

Metrics have the names of RL, `rl/...`: counts are sums over the policies, all else is their mean.
Those of one policy are `rl/NAME/...`, those of the exchange `rl/exchange_...`.
"""

from posttrain.learning.rl.company import refuse_without_company
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task, refuse_unserved_ports
from tasks.coevolve.config import SeveralConfig

CHECKPOINTS = ArtifactKind("checkpoints", shape="models", rank=1)
"""A folder of checkpoints, each in a folder of its name."""

_ASKED = {
    "reward_models": "reward.reward_model",
    "references": "sft.policy",
    "traces": "curate.traces",
    "verdicts": "judge.verdicts",
}
"""Ports of the reward's components, each with what a recipe may connect."""


def _refuse(stage: Stage, dag: Dag) -> None:  # noqa: ARG001 - every task is asked alike
    """Refuse parts without those that they need, a reference that nothing asks, and odd ports."""
    config, wired = stage.config, stage.inputs
    assert isinstance(config, SeveralConfig)
    refuse_without_company(config, stage.name)
    if "solve_rates" in config.draw.sampler.NEEDS and "solve_rates" not in wired:
        raise UserError(
            f"{stage.name}.draw.sampler: {config.draw.sampler.kind} begins from solve rates, and"
            " none are connected; connect a probe's, or set sampler to uniform"
        )
    if "reference" in wired and not config.algorithm.uses_reference:
        raise UserError(
            f"{stage.name}.inputs.reference: {wired['reference']} is connected, but the algorithm"
            " has no kl, so it would change nothing; set algorithm.regularizers.kl, or write"
            " reference: null"
        )
    if config.exchange.policies == 1:
        raise UserError(
            f"{stage.name}.exchange.policies: there is one policy, which has nobody to exchange"
            " with, and no other would be handed on; raise it, or train the policy in the section"
            " rl"
        )
    connected = sum(name.startswith("policies.") for name in wired)
    if connected >= config.exchange.policies:
        raise UserError(
            f"{stage.name}.inputs.policies: {connected} policies are connected beside the first,"
            f" and exchange.policies says that there are {config.exchange.policies} in all; raise"
            " it, or connect fewer"
        )
    refuse_unserved_ports(stage, "reward.components", config.reward.ports, _ASKED)


TASK = Task(
    package="tasks.coevolve",
    config=SeveralConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "the first policy, which is handed on"),
        "policies": Port(
            ArtifactKind.CHECKPOINT,
            "further policies by name, in the place of copies of the first",
            many=True,
            optional=True,
        ),
        "problems": Port(ArtifactKind.PROBLEMS, "problems to practice on"),
        "verifiers": Port(
            ArtifactKind.VERIFIERS, "what scores problems that name no verifier", optional=True
        ),
        "solve_rates": Port(
            ArtifactKind.SOLVE_RATES,
            "how often the first policy solves them, where the sampler begins from it",
            optional=True,
        ),
        "reference": Port(
            ArtifactKind.CHECKPOINT,
            "policy that all stay near, where the algorithm has a kl; else each to its own start",
            optional=True,
        ),
        "reward_models": Port(
            ArtifactKind.REWARD_MODEL,
            "score answers, for components of kind model",
            many=True,
            optional=True,
            own_tokenizer=True,
        ),
        "references": Port(
            ArtifactKind.CHECKPOINT,
            "policies that components of the reward ask: log_ratio, embedding, information_gain",
            many=True,
            optional=True,
        ),
        "traces": Port(
            ArtifactKind.COMPLETIONS,
            "solutions that components of the reward compare with: trace_likeness",
            optional=True,
        ),
        "verdicts": Port(
            ArtifactKind.VERDICTS,
            "what was said of answers before, for components of kind stored",
            optional=True,
        ),
    },
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "the first policy, improved"),
        "others": Port(CHECKPOINTS, "the other policies, each in a folder of its name"),
        "rollouts": Port(ArtifactKind.ROLLOUTS, "everything that was drawn or read, step by step"),
        "curve": Port(ArtifactKind.CURVE, "figures of each step, together and of each policy"),
        "report": Port(ArtifactKind.REPORT, "the algorithm by switches; every policy's digests"),
    },
    refuse=_refuse,
)
