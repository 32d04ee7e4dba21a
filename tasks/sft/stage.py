"""Fine-tune a policy on verified traces, prompt tokens masked."""

from collections.abc import Mapping
from pathlib import Path

from posttrain.data.schemas import COMPLETIONS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy
from posttrain.learning.training.next_token import Corpus, fit
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.sft.config import SftConfig


def run(
    config: SftConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read the traces, load the policy, train it, save it."""
    traces = read_table(inputs["traces"], COMPLETIONS, columns=["prompt", "text", "verified"])
    num_unverified = len(traces) - int(traces["verified"].sum())
    if num_unverified:
        raise UserError(
            f"{inputs['traces']}: {num_unverified} of {len(traces)} traces are not verified; "
            "connect the curated traces, or filter on 'verified'"
        )
    policy = load_policy(inputs["policy"], device=context.device)
    config.template.give_to(policy.tokenizer, where="sft")

    corpus = Corpus(traces["prompt"].to_list(), traces["text"].to_list())
    return fit(policy, corpus, outputs, config=config, context=context, where=config.STAGE)
