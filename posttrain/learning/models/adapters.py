"""LoRA through peft: attach adapters in place, merge them into plain weights, save them.

The model stays the transformers model that it was, with some of its linear layers wrapped, so all
that takes a model goes on working; only the adapters require a gradient.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from posttrain.learning.models.linear_layers import linear_layers
from posttrain.learning.models.load import weights_digest
from posttrain.stage.errors import UserError
from posttrain.stage.extras import extra_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_FACTS = "base.json"


@dataclass(frozen=True)
class Adapter:
    """Adapters that are attached to `model`, and the digest of the weights below them."""

    model: "PreTrainedModel"
    peft_model: Any
    base_digest: str

    def merge(self) -> None:
        """Add the updates to the weights and take the wrappers off: a plain model again."""
        self.peft_model.merge_and_unload()

    def save(self, path: Path) -> None:
        """Write adapter weights and config, and the digest of the base that they belong to."""
        # Left to itself, peft would ask the hub whether the base's embeddings have grown.
        self.peft_model.save_pretrained(path, save_embedding_layers=False)
        (path / _FACTS).write_text(json.dumps({"base": self.base_digest}) + "\n")


def attach_adapter(
    model: "PreTrainedModel",
    *,
    rank: int,
    alpha: int,
    dropout: float = 0.0,
    targets: Sequence[str] = (),
    seed: int = 0,
) -> Adapter:
    """Wrap linear layers of a model in a low-rank adapter (LoRA, arXiv 2106.09685).

    The first output is the base's own, as one factor of every update starts at 0. A reward head
    that is there stays trainable.

    Args:
        model: The base, changed in place.
        rank: Rank of every update.
        alpha: Updates are scaled by alpha / rank.
        dropout: Share of a wrapped layer's inputs that is dropped in training.
        targets: Ends of the names of the layers to wrap; none takes all linear layers but the head.
        seed: Of the factor that does not start at 0.

    Returns:
        The adapter, with the digest of the base that it belongs to.

    """
    peft = _peft()
    base_digest = weights_digest(model)
    names = _targets(model, targets)
    config = peft.LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=names)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        peft_model = peft.get_peft_model(model, config)
    # peft names the base by the directory that it came from, which is no part of it.
    for entry in peft_model.peft_config.values():
        entry.base_model_name_or_path = base_digest
    for name, child in model.named_children():
        if name == "score":
            child.requires_grad_(True)
    return Adapter(model, peft_model, base_digest)


def load_adapter(model: "PreTrainedModel", path: Path) -> None:
    """Merge a saved adapter into the base that it was trained on.

    Args:
        model: The base, changed in place into a plain model again.
        path: What `Adapter.save` wrote.

    Raises:
        UserError: It is no adapter that posttrain saved, or the base has other weights.

    """
    facts = path / _FACTS
    if not facts.is_file():
        raise UserError(f"{path}: this is no adapter that posttrain saved; there is no {_FACTS}")
    wanted, found = json.loads(facts.read_text())["base"], weights_digest(model)
    if wanted != found:
        raise UserError(
            f"{path}: the adapter belongs to weights {wanted[:12]}, these are {found[:12]}; "
            "give the base that it was trained on"
        )
    _peft().PeftModel.from_pretrained(model, str(path)).merge_and_unload()


def _peft() -> Any:
    """The package, which plain training does without."""
    try:
        import peft
    except ModuleNotFoundError:
        raise UserError(
            f"lora needs peft, which is not installed; run: {extra_line('lora')}"
        ) from None
    return peft


def _targets(model: "PreTrainedModel", ends: Sequence[str]) -> list[str]:
    """Full names of the linear layers to wrap; sorted, as a set has no order to save."""
    linear = linear_layers(model)
    if not ends:
        return sorted(linear)
    for end in ends:
        if not any(name == end or name.endswith(f".{end}") for name in linear):
            known = ", ".join(sorted({name.rpartition(".")[2] for name in linear}))
            raise UserError(f"lora.targets: no linear layer is called '{end}'; there are: {known}")
    return sorted(n for n in linear if any(n == end or n.endswith(f".{end}") for end in ends))
