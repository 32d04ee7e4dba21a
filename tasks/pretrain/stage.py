"""Train a tokenizer and a small Llama on raw text, or go on training a given model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from posttrain.data.rows import encode_rows
from posttrain.data.tables import read_table
from posttrain.models.build import build_llama
from posttrain.models.load import Policy, load_policy, save_policy
from posttrain.models.tokenizer import train_tokenizer
from posttrain.pipeline.context import StageContext
from posttrain.records import COMPLETIONS
from posttrain.training.curve import Curve
from posttrain.training.next_token import fitting, next_token_loss, token_batches
from posttrain.training.supervised import train
from tasks.pretrain.config import PretrainConfig


def run(
    config: PretrainConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read the corpus, start a policy, train it, save it."""
    corpus = read_table(inputs["corpus"], COMPLETIONS, columns=["source", "prompt", "text"])
    prompts, texts = corpus["prompt"].to_list(), corpus["text"].to_list()
    policy = _start(config, inputs, prompts, texts, context)

    rows = encode_rows(policy.tokenizer, prompts, texts, mask_prompts=not config.loss_on_prompts)
    kept = fitting(rows, max_length=config.max_length, where="pretrain")
    if len(kept) < len(rows):
        context.note(f"left out {len(rows) - len(kept)} rows over {config.max_length} tokens")
    rows = [rows[index] for index in kept]
    batches = token_batches(
        policy,
        rows,
        config=config,
        seed=context.seed,
        groups=corpus["source"].gather(kept).to_list(),
        mixture=config.mixture,
    )

    curve = Curve(context)
    train(
        policy.model,
        batches,
        next_token_loss,
        config=config,
        context=context,
        curve=curve,
        prefix="pretrain",
    )
    save_policy(policy.model, policy.tokenizer, outputs["policy"])
    curve.write(outputs["curve"])
    return {
        "pretrain/loss": curve.last("pretrain/loss", window=20),
        "pretrain/num_steps": float(len(batches.steps)),
        "pretrain/num_rows": float(len(rows)),
        "pretrain/num_too_long": float(len(corpus) - len(rows)),
        "pretrain/num_parameters": float(policy.model.num_parameters()),
    }


def _start(
    config: PretrainConfig,
    inputs: Mapping[str, Path],
    prompts: Sequence[str],
    texts: Sequence[str],
    context: StageContext,
) -> Policy:
    """The given policy, or a fresh tokenizer and random weights."""
    if "policy" in inputs:
        return load_policy(inputs["policy"], device=context.device)
    tokenizer = train_tokenizer([*prompts, *texts], vocab_size=config.vocab_size)
    model = build_llama(
        tokenizer,
        hidden=config.hidden,
        layers=config.layers,
        heads=config.heads,
        seed=context.seed,
        max_length=config.max_length,
    )
    return Policy(model.to(context.device), tokenizer)
