"""Run a kept batch once more, and say where the first number comes from that is not finite."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posttrain.learning.models.load import load_weights, weights_digest
from posttrain.learning.training.failed_batch import load_failed_batch, weights_beside
from posttrain.stage.errors import UserError

_IDS = "input_ids_BT"


@dataclass(frozen=True)
class BatchReplay:
    """What a kept batch does to the weights that it met."""

    step: int
    weights: str
    findings: tuple[str, ...]
    """One sentence for the weights and for each micro-batch in which something is not finite."""
    num_parts: int
    num_tokens: int


@dataclass(frozen=True)
class _Tokens:
    """The rows of a part that pass through the model together."""

    ids_BT: Tensor
    wanted_BT: Tensor
    position_ids_BT: Tensor | None


def replay_batch(path: Path) -> BatchReplay:
    """Pass every micro-batch forward and backward through the weights kept beside it.

    The loss is the mean of -log p of the tokens that bore loss: what is finite here was made
    otherwise by the other terms of the run's own loss.

    Args:
        path: File of the batch, as a failed run wrote it.

    Returns:
        What was found not to be finite, for the weights and for every micro-batch.

    Raises:
        UserError: No weights were kept, or they are not those that the batch met.

    """
    kept = load_failed_batch(path)
    model = _model(weights_beside(path))
    found = weights_digest(model)
    if found != kept.facts["weights"]:
        raise UserError(
            f"{weights_beside(path)}: these weights are not those that the batch met; keep the"
            " folder beside the file as the run wrote it"
        )
    rows = [list(_tokens(part, model, path)) for part in kept.parts]
    findings = [_first(model.named_parameters(), "the weight {} is not finite")]
    for index, (part, passes) in enumerate(zip(kept.parts, rows, strict=True)):
        finding = _first(part.items(), "the batch itself holds {}, which is not finite")
        finding = finding or next(filter(None, (_pass(model, each) for each in passes)), "")
        findings.append(finding and f"micro-batch {index}: {finding}")
    return BatchReplay(
        step=int(kept.facts["step"]),
        weights=found,
        findings=tuple(filter(None, findings)),
        num_parts=len(kept.parts),
        num_tokens=sum(int(each.wanted_BT.sum()) for passes in rows for each in passes),
    )


def _model(path: Path) -> Any:
    """The model with its head, without a tokenizer: the batch is tokens already."""
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    described = path / "config.json"
    if not described.is_file():
        raise UserError(
            f"{path}: no weights were kept with this batch, as adapters and sharded weights are"
            " not; run the stage again, which goes on from its last checkpoint to the same batch"
        )
    try:
        architectures = json.loads(described.read_text())["architectures"]
        scores = any(name.endswith("ForSequenceClassification") for name in architectures)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{described}: this names no architecture; keep it as written") from None
    loader = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
    return load_weights(loader, path, device="cpu", dtype=torch.float32)


def _tokens(part: Mapping[str, Tensor], model: Any, path: Path) -> Iterator[_Tokens]:
    """Every set of rows that a part holds; a pair's part may hold another beside its pairs."""
    num_embeddings = model.get_input_embeddings().weight.shape[0]
    for name in (name for name in part if name.endswith(_IDS)):
        prefix, ids_BT = name.removesuffix(_IDS), part[name]
        wanted_BT = part.get(f"{prefix}mask_BT", part.get(f"{prefix}wanted_BT"))
        sound = wanted_BT is not None and wanted_BT.shape == ids_BT.shape and ids_BT.ndim == 2
        if not sound or not 0 <= int(ids_BT.min()) <= int(ids_BT.max()) < num_embeddings:
            raise UserError(f"{path}: its rows are not of this model; keep both as written")
        assert wanted_BT is not None
        yield _Tokens(ids_BT, wanted_BT.bool(), part.get(f"{prefix}packing.position_ids_BT"))


def _pass(model: Any, tokens: _Tokens) -> str:
    """The first module, or the first gradient, that is not finite; empty where none is."""
    culprits: list[str] = []

    def watch(name: str) -> Any:
        def look(_module: Any, _inputs: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, Tensor) and not torch.isfinite(first).all():
                culprits.append(name)

        return look

    hooks = [m.register_forward_hook(watch(n)) for n, m in model.named_modules() if n]
    try:
        logits = model(input_ids=tokens.ids_BT, position_ids=tokens.position_ids_BT).logits
    finally:
        for hook in hooks:
            hook.remove()
    if culprits:
        return f"the output of {culprits[0]} is not finite"
    _loss(logits, tokens).backward()  # type: ignore[no-untyped-call]
    gradients = [(n, p.grad) for n, p in model.named_parameters() if p.grad is not None]
    finding = _first(gradients, "the gradient of {} is not finite")
    model.zero_grad(set_to_none=True)
    return finding


def _loss(logits: Tensor, tokens: _Tokens) -> Tensor:
    if logits.ndim == 2:
        return logits.float().mean()
    logprobs_BTV = logits[:, :-1].float().log_softmax(-1)
    taken_BT = logprobs_BTV.gather(-1, tokens.ids_BT[:, 1:, None])[..., 0]
    return -taken_BT[tokens.wanted_BT[:, 1:]].mean()


def _first(tensors: Any, sentence: str) -> str:
    """The sentence about the first tensor that is not finite; empty where all are."""
    bad = (name for name, tensor in tensors if not torch.isfinite(tensor).all())
    return next((sentence.format(name) for name in bad), "")
