"""Expert iteration: a policy is taught what it solved itself, round by round."""

from flows._beginning import begin_flow
from posttrain.pipeline.flow_builder import Round
from posttrain.pipeline.recipe import FlowBuilder
from posttrain.stage.spec import Stage
from tasks.curate import TASK as CURATE
from tasks.evaluate import TASK as EVALUATE
from tasks.probe import TASK as PROBE
from tasks.sft import TASK as SFT


def declare(build: FlowBuilder) -> None:
    """Synthesize, curate, pretrain or import, fine-tune; three rounds of probe, curate and SFT.

    A round samples the policy of the one before, keeps the samples that a verifier accepted, each
    text of a problem once, and fine-tunes that policy on them. `curate` is the section of all
    curations, `curate_1` of that of the first round.
    """
    raw, data, base, policies = begin_flow(build)
    sft = build.stage("sft", SFT, policy=base["policy"], traces=data["traces"])

    def body(round: Round, before: tuple[Stage, ...]) -> tuple[Stage, ...]:
        policy = before[-1]["policy"]
        probe = round.stage("probe", PROBE, policy=policy, problems=data["problems"])
        kept = round.stage(
            "curate",
            CURATE,
            problems=data["problems"],
            heldout=raw["heldout"],
            traces=probe["samples"],
        )
        return (*before, round.stage("sft", SFT, policy=policy, traces=kept["traces"]))

    start: tuple[Stage, ...] = (sft,)
    rounds = build.rounds(3, body, start)
    policies = {**policies, **{made.name: made["policy"] for made in rounds}}
    build.stage("evaluate", EVALUATE, problems=raw["heldout"], policies=policies)
