"""Fine-tune a policy on verified traces, prompt tokens masked."""

from collections.abc import Mapping
from pathlib import Path

from posttrain.data.rows import encode_rows
from posttrain.data.tables import read_table
from posttrain.errors import UserError
from posttrain.models.load import load_policy, save_policy
from posttrain.pipeline.context import StageContext
from posttrain.records import COMPLETIONS
from posttrain.training.curve import Curve
from posttrain.training.next_token import fitting, next_token_loss, token_batches
from posttrain.training.supervised import train
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

    rows = encode_rows(policy.tokenizer, traces["prompt"].to_list(), traces["text"].to_list())
    kept = fitting(rows, max_length=config.max_length, where="sft")
    if len(kept) < len(rows):
        context.note(f"left out {len(rows) - len(kept)} rows over {config.max_length} tokens")
    rows = [rows[index] for index in kept]
    batches = token_batches(policy, rows, config=config, seed=context.seed)

    curve = Curve(context)
    train(
        policy.model,
        batches,
        next_token_loss,
        config=config,
        context=context,
        curve=curve,
        prefix="sft",
    )
    save_policy(policy.model, policy.tokenizer, outputs["policy"])
    curve.write(outputs["curve"])
    return {
        "sft/loss": curve.last("sft/loss", window=20),
        "sft/num_steps": float(len(batches.steps)),
        "sft/num_rows": float(len(rows)),
        "sft/num_too_long": float(len(traces) - len(rows)),
    }
