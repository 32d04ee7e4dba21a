"""Train a tokenizer and a small mask predictor on prompts and answers."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from posttrain.data.contexts import prompts_of
from posttrain.data.schemas import COMPLETIONS
from posttrain.data.tables import read_table, refuse_nothing_solved
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import Policy
from posttrain.learning.models.mask_policy import remember_masks
from posttrain.learning.models.mask_predictor import as_mask_predictor
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.denoising import masked_objective
from posttrain.learning.training.prepare import prepare_for_training, stop_at_turns
from posttrain.learning.training.supervised import train
from posttrain.stage.context import StageContext
from tasks.denoise.config import DenoiseConfig

_COLUMNS = ["source", "prompt", "text", "context"]
_MASK = "<mask>"


def run(
    config: DenoiseConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read the traces, start a policy, train it, save it."""
    traces = read_table(inputs["traces"], COMPLETIONS, columns=_COLUMNS)
    refuse_nothing_solved(len(traces), where="denoise")
    policy = _start(config, traces, context)
    objective = masked_objective(
        policy,
        prompts_of(traces),
        traces["text"].to_list(),
        traces["source"].to_list(),
        config=config,
        context=context,
    )
    trainable = prepare_for_training(policy.model, config.learner, seed=context.seed)
    curve = Curve(context)
    num_steps = train(
        trainable, objective, config=config, context=context, curve=curve, prefix="denoise"
    )
    stop_at_turns(policy.model, policy.tokenizer)
    trainable.save(policy.tokenizer, outputs["policy"])
    curve.write(outputs["curve"])
    return {
        "denoise/loss": curve.last("denoise/loss", window=20),
        "denoise/num_steps": float(num_steps),
        "denoise/num_parameters": float(policy.model.num_parameters()),
    }


def _start(config: DenoiseConfig, traces: pl.DataFrame, context: StageContext) -> Policy:
    """A fresh tokenizer with a mask token, and random weights."""
    texts = [*traces["prompt"], *traces["text"]]
    tokenizer = train_tokenizer(texts, vocab_size=config.vocab_size - 1)
    tokenizer.add_special_tokens({"mask_token": _MASK})
    config.template.give_to(tokenizer, where="denoise")
    model = build_llama(
        tokenizer,
        hidden=config.hidden,
        layers=config.layers,
        heads=config.heads,
        seed=context.seed,
        max_length=config.max_length,
    )
    remember_masks(model, mask=int(tokenizer.mask_token_id), canvas=config.canvas)
    as_mask_predictor(model)
    return Policy(model.to(context.device), tokenizer)
