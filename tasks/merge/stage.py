"""Load the models, check that they fit, and save what is made of their weights."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from posttrain.learning.models.load import (
    Policy,
    load_policy,
    load_tokenizer,
    save_policy,
    weights_digest,
)
from posttrain.learning.models.merges.base import NamedWeights, ToMerge
from posttrain.learning.models.record import remember_parent
from posttrain.learning.models.tokenizer import check_same_tokenizer
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed
from posttrain.stage.slots import name_of
from tasks.merge.config import MergeConfig

_OF_ONE_COPY = frozenset({"_name_or_path", "dtype", "posttrain", "transformers_version"})
"""Fields of a model's config that say nothing of how its weights are read."""


def run(
    config: MergeConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Merge; the model keeps the number format and the record of the base, or of the first."""
    paths = {role.partition(".")[2]: inputs[role] for role in sorted(inputs) if role != "base"}
    start = inputs.get("base") or next(iter(paths.values()))
    policy = load_policy(start)
    # Before it is rounded: the ancestor is named as whoever loads the start would name it.
    remember_parent(policy.model, weights_digest(policy.model))
    own = _weights(load_policy(start))
    models: dict[str, NamedWeights] = {}
    for place, (name, path) in enumerate(paths.items()):
        check_same_tokenizer(policy.tokenizer, load_tokenizer(path), where=f"merge: {name}")
        other = load_policy(path)
        models[name] = _weights(other)
        _check_shapes(own, models[name], name)
        _check_architecture(policy, other, name)
        context.progress(place + 1, len(paths), unit="model")
    seed = purpose_seed(context.seed, "merge")
    given = ToMerge(models, own if "base" in inputs else {}, seed)
    with torch.inference_mode():
        merged = config.method.merged(given)
        _check_shapes(own, merged, name_of(config.method))
        figures = dict(config.method.figures(given))
    # As the start is stored: the merged model is to be no larger than what it is made of.
    policy.model.to(load_policy(start, dtype=None).model.dtype)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            parameter.copy_(merged[name])
        # Of what is saved: a narrow number format loses what is added to large numbers.
        saved = {name: each.float() for name, each in policy.model.named_parameters()}
        distances = {name: _distance(saved, weights) for name, weights in models.items()}
        figures["rounded_off"] = _distance(saved, merged)
    save_policy(policy.model, policy.tokenizer, outputs["policy"])
    report = {"method": config.method.kind, "distances": distances, "figures": figures}
    outputs["report"].write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    metrics = {f"merge/distance/{name}": each for name, each in distances.items()}
    return metrics | {f"merge/{name}": each for name, each in figures.items()}


def _weights(policy: Policy) -> NamedWeights:
    return {name: each.detach() for name, each in policy.model.named_parameters()}


def _check_shapes(own: NamedWeights, other: NamedWeights, name: str) -> None:
    wrong = sorted(own.keys() ^ other.keys())
    wrong += [each for each in own if each in other and own[each].shape != other[each].shape]
    if wrong:
        raise UserError(
            f"merge: '{name}' has not the weights of the others, such as {wrong[0]}; merge models"
            " of one architecture"
        )


def _check_architecture(one: Policy, other: Policy, name: str) -> None:
    """Refuse weights of one shape that another model reads in another way."""
    own, theirs = (each.model.config.to_dict() for each in (one, other))
    odd = sorted(
        field
        for field in (own.keys() | theirs.keys()) - _OF_ONE_COPY
        if own.get(field) != theirs.get(field)
    )
    if odd:
        raise UserError(
            f"merge: '{name}' reads its weights in another way than the first model, as its"
            f" {odd[0]} is {theirs.get(odd[0])} and not {own.get(odd[0])}; merge models of one"
            " architecture"
        )


def _distance(one: Mapping[str, Tensor], other: NamedWeights) -> float:
    """Root mean square of the difference over all weights."""
    square = sum(float((one[name] - other[name]).double().square().sum()) for name in other)
    return float((square / sum(each.numel() for each in other.values())) ** 0.5)
