"""RL: policy gradients with a stack of reward components, by the algorithm that the recipe names.

Every metric has a stable name, `rl/...`; `posttrain.learning.rl.metrics` lists them.
"""

from posttrain.learning.rl.company import refuse_without_company
from posttrain.learning.rollouts.engines.engine import refuse_crowded
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task, refuse_unserved_ports
from tasks.rl.config import RlStageConfig

_ASKED = {
    "reward_models": "reward.reward_model",
    "references": "sft.policy",
    "traces": "curate.traces",
    "verdicts": "judge.verdicts",
}
"""Ports of the reward's components, each with what a recipe may connect."""


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse solve rates of another policy, a sampler without them, ports that nobody asks.

    And parts that mean something together, where one stands without the others.
    """
    config, wired = stage.config, stage.inputs
    assert isinstance(config, RlStageConfig)
    refuse_without_company(config, stage.name)
    asked_of = stage.resources
    refuse_crowded(
        config.engine, asked_of.processes, on_ray=asked_of.ray is not None, where=stage.name
    )
    if "solve_rates" in config.draw.sampler.NEEDS:
        if "solve_rates" not in wired:
            raise UserError(
                f"{stage.name}.draw.sampler: {config.draw.sampler.kind} begins from solve rates,"
                " and none are connected; connect a probe's, or set sampler to uniform"
            )
        probe = wired["solve_rates"].stage
        probed = dag.stages[probe].inputs.get("policy") if probe else None
        if probed is not None and probed != wired["policy"]:
            raise UserError(
                f"{stage.name}.inputs.solve_rates: {probe} probes {probed}, and {stage.name} starts"
                f" from {wired['policy']}; probe that one ({probe}: {{inputs: {{policy:"
                f" {wired['policy']}}}}}, or a further entry of a list of probes), or set"
                f" {stage.name}.draw.sampler to uniform"
            )
    if "reference" in wired and not config.algorithm.uses_reference:
        raise UserError(
            f"{stage.name}.inputs.reference: {wired['reference']} is connected, but the algorithm"
            " has no kl, so it would change nothing; set algorithm.regularizers.kl, or write"
            " reference: null"
        )
    if "episodes" in wired and "turn_values" not in config.algorithm.needs:
        raise UserError(
            f"{stage.name}.inputs.episodes: {wired['episodes']} is connected, but the advantage is"
            " not learned from stored episodes; set algorithm.advantage.kind to learned, or write"
            " episodes: null"
        )
    asked = config.reward.ports
    if more := dict.fromkeys(config.producer.ports, config.producer.kind):
        refuse_unserved_ports(stage, "producer", more, {each: _ASKED[each] for each in more})
        asked = {**more, **asked}
    refuse_unserved_ports(stage, "reward.components", asked, _ASKED)
    players, instructor = dict(config.producer.players_asked), config.draw.instructions
    if instructor is not None:
        refuse_unserved_ports(stage, "draw.instructions", instructor.players_asked, {})
        players |= instructor.players_asked
    addition = config.draw.additions
    asked = {port: str(addition.kind) for port in addition.ports()} if addition is not None else {}
    served = {"solutions": "curate.traces", "stored": "teacher.rollouts"}
    refuse_unserved_ports(stage, "draw.additions", asked, served)
    rehearsed = {f"rehearsals.{name}": name for name in config.updates.rehearsals}
    refuse_unserved_ports(stage, "updates.rehearsals", rehearsed, {"rehearsals": "probe.samples"})
    refuse_unserved_ports(stage, "producer.roles", players, {"players": "sft.policy"})


TASK = Task(
    package="tasks.rl",
    config=RlStageConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "policy to improve"),
        "problems": Port(ArtifactKind.PROBLEMS, "problems to practice on"),
        "verifiers": Port(
            ArtifactKind.VERIFIERS, "what scores problems that name no verifier", optional=True
        ),
        "solve_rates": Port(
            ArtifactKind.SOLVE_RATES,
            "how often that policy solves them, where the problem sampler begins from it",
            optional=True,
        ),
        "reference": Port(
            ArtifactKind.CHECKPOINT,
            "policy to stay near, where the algorithm has a kl",
            optional=True,
        ),
        "episodes": Port(
            ArtifactKind.ROLLOUTS,
            "stored episodes to learn from before any is drawn, where the advantage is learned",
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
        "players": Port(
            ArtifactKind.CHECKPOINT,
            "policies that play further roles of an environment",
            many=True,
            optional=True,
        ),
        "traces": Port(
            ArtifactKind.COMPLETIONS,
            "solutions that a part of the reward compares with, or the producer gives a part of",
            optional=True,
        ),
        "rehearsals": Port(
            ArtifactKind.COMPLETIONS,
            "answers that rehearsals learn from, by the name of the rehearsal",
            many=True,
            optional=True,
        ),
        "solutions": Port(
            ArtifactKind.COMPLETIONS,
            "answers of others that join the groups of their problems, for draw.additions",
            optional=True,
        ),
        "stored": Port(
            ArtifactKind.ROLLOUTS,
            "rollouts of another run, which join the groups of their problems with the"
            " log-probabilities of who drew them, for draw.additions",
            optional=True,
        ),
        "verdicts": Port(
            ArtifactKind.VERDICTS,
            "what was said of answers before, for components of kind stored",
            optional=True,
        ),
    },
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "the improved policy"),
        "rollouts": Port(ArtifactKind.ROLLOUTS, "everything that was drawn, step by step"),
        "curve": Port(ArtifactKind.CURVE, "reward, length, yield and optimization per step"),
        "report": Port(ArtifactKind.REPORT, "the algorithm by switches and digest; how it ended"),
    },
    parallel=True,
    on_ray=True,
    refuse=_refuse,
)
