"""DPO in rounds: each samples the policy of the one before, and learns from its pairs."""

from flows._beginning import begin_flow
from posttrain.pipeline.flow_builder import Round
from posttrain.pipeline.recipe import FlowBuilder
from posttrain.stage.spec import Stage
from tasks.evaluate import TASK as EVALUATE
from tasks.preference import TASK as PREFERENCE
from tasks.probe import TASK as PROBE
from tasks.sft import TASK as SFT


def declare(build: FlowBuilder) -> None:
    """Synthesize, curate, pretrain or import, fine-tune; three rounds of probe and DPO; evaluate.

    A round starts from the policy of the one before, which is its reference too, and learns from
    the pairs of its own probe and of all rounds before.
    """
    raw, data, base, policies = begin_flow(build)
    sft = build.stage("sft", SFT, policy=base["policy"], traces=data["traces"])

    def body(round: Round, before: tuple[Stage, ...]) -> tuple[Stage, ...]:
        policy = (before[-1] if before else sft)["policy"]
        probe = round.stage("probe", PROBE, policy=policy, problems=data["problems"])
        made = round.stage(
            "preference",
            PREFERENCE,
            policy=policy,
            samples=probe["samples"],
            problems=data["problems"],
            earlier_pairs={earlier.name: earlier["pairs"] for earlier in before},
        )
        return (*before, made)

    start: tuple[Stage, ...] = ()
    rounds = build.rounds(3, body, start)
    policies = {**policies, "sft": sft["policy"]}
    policies |= {made.name: made["policy"] for made in rounds}
    build.stage("evaluate", EVALUATE, problems=raw["heldout"], policies=policies)
