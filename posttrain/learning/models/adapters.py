"""LoRA through peft: attach adapters in place, merge them into plain weights, save them.

The model stays the transformers model that it was, with some of its linear layers wrapped, so all
that takes a model goes on working; only the adapters require a gradient. The weights below them may
be held narrow (`held_weights`, `nf4`); merged they are in float32, as they were computed with.
"""

import json
from collections.abc import Container, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from posttrain.learning.models.held_weights import release
from posttrain.learning.models.hold import hold_as
from posttrain.learning.models.linear_layers import linear_layers
from posttrain.learning.models.load import weights_digest
from posttrain.learning.models.unread import is_unread
from posttrain.stage.absent import absent
from posttrain.stage.errors import UserError
from posttrain.stage.extras import extra_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_FACTS = "base.json"

_WRAPPED = ".base_layer."


@dataclass(frozen=True)
class Adapter:
    """Adapters that are attached to `model`, and the digest of the weights below them."""

    model: "PreTrainedModel"
    peft_model: Any
    base_digest: str
    """Of the weights as they are stored, however they are held."""
    weights: str = "fp32"
    """How the base is held: see `hold_as`."""

    def merge(self) -> None:
        """Add the updates to the weights and take the wrappers off: a plain model in float32.

        To weights that are held narrow they are added once these are wide: the sum is not rounded
        again, so the merged policy is the one that was trained.
        """
        release(self.model)
        self.peft_model.merge_and_unload()

    def save(self, path: Path) -> None:
        """Write adapter weights and config, and the digest of the base that they belong to."""
        # Left to itself, peft would ask the hub whether the base's embeddings have grown.
        self.peft_model.save_pretrained(path, save_embedding_layers=False)
        facts = {"base": self.base_digest}
        if self.weights != "fp32":
            facts["weights"] = self.weights
        (path / _FACTS).write_text(json.dumps(facts) + "\n")

    @contextmanager
    def switched_off(self) -> Iterator["PreTrainedModel"]:
        """Let the model be its base, in evaluation mode, for as long as the context lasts.

        No gradient is taken there.

        Yields:
            The model.

        """
        # peft's own switch turns off gradients too, of parameters that a graph may be waiting for.
        layers = [each for each in self.model.modules() if hasattr(each, "_disable_adapters")]
        for layer in layers:
            layer._disable_adapters = True
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                yield self.model
        finally:
            self.model.train(was_training)
            for layer in layers:
                layer._disable_adapters = False


def attach_adapter(
    model: "PreTrainedModel",
    *,
    rank: int,
    alpha: int,
    dropout: float = 0.0,
    targets: Sequence[str] = (),
    dora: bool = False,
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
        dora: Whether the length of each row of a weight is trained beside its update (DoRA, arXiv
            2402.09353, equation 5).
        seed: Of the factor that does not start at 0.

    Returns:
        The adapter, with the digest of the base that it belongs to.

    """
    peft = _peft()
    base_digest = weights_digest(model)
    names = _targets(model, targets)
    config = peft.LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=names, use_dora=dora
    )
    with torch.random.fork_rng(), _own_layers_alone(), _with_values(unread=is_unread(model)):
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
    """Merge a saved adapter into the base that it was trained on, held as it was then.

    Args:
        model: The base, changed in place into a plain model again.
        path: What `Adapter.save` wrote.

    Raises:
        UserError: It is no adapter that posttrain saved, or the base has other weights.

    """
    facts = path / _FACTS
    if not facts.is_file():
        raise UserError(f"{path}: this is no adapter that posttrain saved; there is no {_FACTS}")
    known = json.loads(facts.read_text())
    wanted, found = known["base"], weights_digest(model)
    if wanted != found:
        raise UserError(
            f"{path}: the adapter belongs to weights {wanted[:12]}, these are {found[:12]}; "
            "give the base that it was trained on"
        )
    hold_as(model, known.get("weights", "fp32"))
    release(model)
    with _own_layers_alone():
        _peft().PeftModel.from_pretrained(model, str(path)).merge_and_unload()


@torch.no_grad()
def plain_weights(model: torch.nn.Module, known: Container[str]) -> Iterator[tuple[str, Tensor]]:
    """Go through the weights that a model computes with, adapters added to the layers below them.

    A tied weight comes under its further names too, where the engine has them: a CPU's output head
    is a packed copy, which is made anew only when a tensor of its own name arrives.

    Args:
        model: With or without adapters, its weights held in any way; it is only read.
        known: Names that the engine has.

    Yields:
        Name and tensor, as `Adapter.merge` would leave them.

    """
    seen: set[int] = set()
    for path, module in model.named_modules(remove_duplicate=False):
        if ".lora_" in path:
            continue
        own = dict(module.named_parameters(recurse=False))
        if isinstance(module, torch.nn.Linear):
            # One that is held in 4 bits has no parameter of that name.
            own["weight"] = module.weight
        for leaf, tensor in own.items():
            name = f"{path}.{leaf}" if path else leaf
            if id(tensor) in seen and name not in known:
                continue
            if isinstance(tensor, torch.nn.Parameter):
                seen.add(id(tensor))
            yield _plain(model, name, tensor.detach())


def _plain(model: torch.nn.Module, name: str, tensor: Tensor) -> tuple[str, Tensor]:
    if _WRAPPED not in name:
        return name, tensor
    path, leaf = name.split(_WRAPPED)
    if leaf == "weight":
        tensor = _adapted(model.get_submodule(path), tensor)
    return f"{path}.{leaf}", tensor


def _adapted(layer: Any, weight: Tensor) -> Tensor:
    """The base's weight with the updates of the adapters that are on."""
    if layer.disable_adapters:
        return weight
    for name in layer.active_adapters:
        weight = weight + layer.get_delta_weight(name)
        if name in layer.lora_magnitude_vector:
            # A Conv1D, as GPT-2's, has its weight the other way around.
            inputs = 0 if layer.fan_in_fan_out else 1
            lengths = torch.linalg.norm(weight, dim=inputs, keepdim=True)
            magnitude = layer.lora_magnitude_vector[name].weight
            weight = magnitude.unsqueeze(inputs) / lengths * weight
    return weight


@contextmanager
def _with_values(*, unread: bool) -> Iterator[None]:
    """Give adapters the values that they begin with, above weights that are not read yet.

    peft moves them to where these weights are: nowhere.
    """
    if not unread:
        yield
        return
    from peft.tuners.lora.layer import LoraLayer

    made: list[tuple[Any, torch.nn.Linear, Tensor]] = []
    begin = LoraLayer.reset_lora_parameters

    def beginning(layer: Any, adapter: str, *given: Any) -> None:
        begin(layer, adapter, *given)
        factors = layer.lora_A[adapter], layer.lora_B[adapter]
        made.extend((layer, each, each.weight.detach().clone()) for each in factors)

    LoraLayer.reset_lora_parameters = beginning
    try:
        yield
    finally:
        LoraLayer.reset_lora_parameters = begin
    for layer, factor, values in made:
        # They go through the type of the weights, as they do where these are there.
        through = values.to(layer.get_base_layer().weight.dtype).to(factor.weight.dtype)
        factor.weight = torch.nn.Parameter(through)


def _own_layers_alone() -> AbstractContextManager[None]:
    """Keep peft from importing bitsandbytes wherever that is there: weights are held without it."""
    return absent("bitsandbytes")


def _peft() -> Any:
    """The package, which plain training does without."""
    try:
        with _own_layers_alone():
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
