"""Train a tokenizer and a small Llama on raw text, or go on training a given model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from posttrain.data.batching import Mixture
from posttrain.data.contexts import prompts_of
from posttrain.data.schemas import COMPLETIONS
from posttrain.data.tables import read_table, refuse_nothing_solved
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import Policy
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.training.next_token import Corpus, fit
from posttrain.learning.training.prepare import load_to_train
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.pretrain.config import PretrainConfig

_COLUMNS = ["source", "prompt", "text", "context"]


def run(
    config: PretrainConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read the corpus, start a policy, train it, save it."""
    corpus = read_table(inputs["corpus"], COMPLETIONS, columns=_COLUMNS)
    refuse_nothing_solved(len(corpus), where="pretrain")
    prompts, texts = corpus["prompt"].to_list(), corpus["text"].to_list()
    policy = _start(config, inputs, prompts, texts, context)
    config.template.give_to(policy.tokenizer, where="pretrain")

    mixture = Mixture(corpus["source"].to_list(), config.mixture) if config.mixture else None
    num_parameters = policy.model.num_parameters()
    metrics = fit(
        policy,
        Corpus(
            prompts_of(corpus),
            texts,
            mask_prompts=not config.loss_on_prompts,
            mixture=mixture,
            sources=corpus["source"].to_list(),
        ),
        outputs,
        config=config,
        context=context,
        new_model="policy" not in inputs,
    )
    return {**metrics, "pretrain/num_parameters": float(num_parameters)}


def _start(
    config: PretrainConfig,
    inputs: Mapping[str, Path],
    prompts: Sequence[str],
    texts: Sequence[str],
    context: StageContext,
) -> Policy:
    """The given policy, or a fresh tokenizer and random weights."""
    if "policy" in inputs:
        return load_to_train(
            inputs["policy"],
            config.learner,
            device=context.device,
            processes=context.processes,
        )
    if config.learner.lora:
        raise UserError(
            "pretrain: adapters change a model that is there, and this one begins from nothing;"
            " leave learner.lora out, or connect inputs.policy"
        )
    tokenizer = train_tokenizer([*prompts, *texts], vocab_size=config.vocab_size)
    model = build_llama(
        tokenizer,
        hidden=config.hidden,
        layers=config.layers,
        heads=config.heads,
        seed=context.seed,
    )
    return Policy(model.to(context.device), tokenizer)
