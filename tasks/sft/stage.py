"""Fine-tune a policy on verified traces, prompt tokens masked."""

from collections.abc import Mapping
from pathlib import Path

from posttrain.data.schemas import COMPLETIONS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.next_token import Corpus, next_token_task
from posttrain.learning.training.prepare import prepare_for_training
from posttrain.learning.training.supervised import train
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

    task, num_rows = next_token_task(
        policy,
        Corpus(traces["prompt"].to_list(), traces["text"].to_list()),
        config=config,
        context=context,
        where="sft",
    )
    trainable = prepare_for_training(policy.model, config.learner, seed=context.seed)
    curve = Curve(context)
    num_steps = train(trainable, task, config=config, context=context, curve=curve, prefix="sft")
    trainable.save(policy.tokenizer, outputs["policy"])
    curve.write(outputs["curve"])
    return {
        "sft/loss": curve.last("sft/loss", window=20),
        "sft/num_steps": float(num_steps),
        "sft/num_rows": float(num_rows),
        "sft/num_too_long": float(len(traces) - num_rows),
    }
