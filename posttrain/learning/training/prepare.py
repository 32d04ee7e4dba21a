"""From a model and a `LearnerConfig` to something that trains: adapters, precision, averages.

Every learner, supervised or not, begins with `prepare_for_training` and ends with `finish`.
"""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from posttrain.data.rows import TokenRow
from posttrain.data.templates import end_of_turn
from posttrain.learning.models.adapters import Adapter, attach_adapter
from posttrain.learning.models.attention import set_attention
from posttrain.learning.models.held_weights import hold_as_stored
from posttrain.learning.models.hold import hold_as
from posttrain.learning.models.load import Policy, load_policy, save_policy, weights_digest
from posttrain.learning.models.narrow import narrow_weights
from posttrain.learning.models.record import remember_lengths, remember_parent
from posttrain.learning.models.subnetwork import Subnetwork, subnetwork_of

# Who makes a model ready whose log-probabilities are compared makes it quiet.
from posttrain.learning.training.asking import check_quiet as check_quiet
from posttrain.learning.training.asking import without_dropout as without_dropout
from posttrain.learning.training.config import LearnerConfig
from posttrain.learning.training.progress import Stateful
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class TrainedWeights:
    """The weights that require a gradient, as a part of a checkpoint: adapters, or everything."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def state_dict(self) -> dict[str, Tensor]:
        """The weights by name."""
        return {name: parameter.detach() for name, parameter in self.parameters.items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put the values back in place."""
        for name, parameter in self.parameters.items():
            parameter.copy_(state[name])


class MovingAverage(TrainedWeights):
    """``average = decay x average + (1 - decay) x weights`` after every step, in float32."""

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        super().__init__(model)
        self.decay = decay
        self.averages = {n: p.detach().float().clone() for n, p in self.parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are now."""
        for name, parameter in self.parameters.items():
            self.averages[name].lerp_(parameter.float(), 1 - self.decay)

    def put_in_place(self) -> None:
        """Make the averages the model's weights."""
        super().load_state_dict(self.averages)

    def state_dict(self) -> dict[str, Tensor]:
        """The averages by name."""
        return self.averages

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from the averages of an earlier attempt."""
        for name, average in self.averages.items():
            average.copy_(state[name])


def precision_of(config: LearnerConfig, model: torch.nn.Module) -> AbstractContextManager[Any]:
    """Open the precision of forward passes.

    Args:
        config: Says which.
        model: Its device is what computes.

    Returns:
        A context; logits and losses leave the precision by themselves.

    """
    if config.precision == "fp32":
        return nullcontext()
    return torch.autocast(str(model.device.type), dtype=torch.bfloat16)


@dataclass(frozen=True)
class Trainable:
    """A model made ready: its parts of a checkpoint, its precision, and how it ends."""

    model: "PreTrainedModel"
    config: LearnerConfig
    adapter: Adapter | None
    average: MovingAverage | None
    subnetwork: Subnetwork | None = None

    def parts(self) -> dict[str, Stateful]:
        """What changes while it trains, for `Progress`."""
        weights: Stateful = TrainedWeights(self.model) if self.adapter else self.model
        return {"model": weights, **({"average": self.average} if self.average else {})}

    def computing(self) -> AbstractContextManager[Any]:
        """The precision of forward passes; logits and losses leave it by themselves."""
        return precision_of(self.config, self.model)

    def after_step(self) -> None:
        """Call after every optimizer step."""
        if self.subnetwork:
            self.subnetwork.restore()
        if self.average:
            self.average.update()

    def finish(self) -> None:
        """Make the model what is to be saved, but for the merging of an adapter."""
        if self.average:
            self.average.put_in_place()
        self.model.eval()

    def merge(self) -> None:
        """After `finish`: take the wrappers off, so that the model is a plain one."""
        if self.adapter:
            self.adapter.merge()

    def save(self, tokenizer: "PreTrainedTokenizerBase", path: Path) -> None:
        """Write a plain checkpoint after `finish`, or the adapter alone where that is wanted.

        Args:
            tokenizer: Written beside the weights.
            path: The folder.

        """
        if self.adapter and self.config.lora and self.config.lora.save == "adapter":
            self.adapter.save(path)
            tokenizer.save_pretrained(path)
            return
        self.merge()
        save_policy(self.model, tokenizer, path)


def load_to_train(path: Path, config: LearnerConfig, *, device: str, processes: int = 1) -> Policy:
    """Load a policy that is to be trained, or to stand beside one.

    Args:
        path: Folder in Hugging Face's format.
        config: Says how weights are held, and whether they are frozen.
        device: Where the weights go, as torch names it.
        processes: How many share it. Of several each reads its own rows, once it is in shards; all
            of it where that is quantized, or lengths of its rows are trained (DoRA).

    Returns:
        The policy, in evaluation mode. Where weights were rounded, it knows what they were, and so
        does its record.

    Raises:
        UserError: It cannot be loaded.

    """
    reading = processes if config.reads_by_rows else 1
    if config.weights == "fp32":
        return load_policy(path, device=device, processes=reading)
    # As they are stored: numbers in half precision are never widened on the way.
    policy = load_policy(path, device=device, dtype=None, processes=reading)
    if config.lora is not None:
        hold_as_stored(policy.model)
        return policy
    if all(parameter.dtype == torch.bfloat16 for parameter in policy.model.parameters()):
        narrow_weights(policy.model)
        return policy
    stored = weights_digest(policy.model)
    narrow_weights(policy.model)
    remember_parent(policy.model, stored)
    return replace(policy, stored=stored)


def prepare_for_training(
    model: "PreTrainedModel", config: LearnerConfig, *, seed: int
) -> Trainable:
    """Remember the parent, hold the weights, choose the attention, attach adapters, and so on.

    Of a model with a subnetwork (`tasks.subnetwork`) that alone is trained.

    Activation checkpointing works in training mode only; see `without_dropout` for a learner whose
    log-probabilities must not be noisy.

    Args:
        model: The model, changed in place.
        config: Which of these are asked for.
        seed: Of the adapter's start.

    Returns:
        The model with its adapter and its average, where there are any.

    """
    remember_parent(model, weights_digest(model))
    if config.weights == "bf16" and config.lora is None:
        narrow_weights(model)
    if config.attention:
        set_attention(model, config.attention)
    adapter = None
    if config.lora:
        stored = weights_digest(model) if config.holds_base else ""
        hold_as(model, config.weights)
        adapter = attach_adapter(
            model,
            rank=config.lora.rank,
            alpha=config.lora.alpha,
            dropout=config.lora.dropout,
            targets=config.lora.targets,
            dora=config.lora.dora,
            seed=purpose_seed(seed, "lora"),
        )
        if config.holds_base:
            adapter = replace(adapter, base_digest=stored, weights=config.weights)
    if config.activation_checkpointing:
        _recompute_activations(model)
    average = MovingAverage(model, config.ema_decay) if config.ema_decay else None
    return Trainable(model, config, adapter, average, subnetwork_of(model))


def remember_answers(
    model: "PreTrainedModel", rows: Sequence[TokenRow], sources: Sequence[str]
) -> None:
    """Let a policy remember how long the answers are that it is taught.

    Args:
        model: The policy.
        rows: What it is taught.
        sources: Source of each.

    """
    remember_lengths(model, [row.num_last for row in rows], sources)


def stop_at_turns(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> None:
    """Let others stop where the template's turns end: the generation config is what they read.

    Args:
        model: The policy; its generation config gets one more end token.
        tokenizer: With the template.

    """
    config, end = model.generation_config, end_of_turn(tokenizer)
    known = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    if end not in {tokenizer.eos_token_id, *known}:
        config.eos_token_id = [*(token for token in known if token is not None), end]


def _recompute_activations(model: "PreTrainedModel") -> None:
    with warnings.catch_warnings():
        # The name that every transformers 5 has; its newest calls it activation_checkpointing.
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable({"use_reentrant": False})
