"""What a model is asked before it learns, also where several processes will share it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from posttrain.learning.models.logprobs import hidden_states
from posttrain.learning.models.unread import SHARED_BY, is_unread
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FromModel = TypeVar("FromModel")


def ask(model: Any, function: Callable[..., FromModel], *arguments: Any) -> FromModel:
    """Call a function with a model; one that is not read yet is in shards meanwhile.

    So all processes that will share the model must ask, at the same time, and get no gradient.

    Args:
        model: As it was loaded.
        function: Called as ``function(model, *arguments)``.
        *arguments: Handed on.

    Returns:
        What the function returns.

    """
    if not is_unread(model):
        return function(model, *arguments)
    from posttrain.learning.models.distributed.shard import in_shards_for_now

    return in_shards_for_now(model)(function, *arguments)  # type: ignore[no-any-return]


def in_turns(model: Any, parts: Sequence[Any], compute: Callable[[Any], Tensor]) -> list[Tensor]:
    """Compute something of each part; processes that share the model take turns.

    Args:
        model: What `compute` asks.
        parts: At least one.
        compute: Gives a tensor of a part.

    Returns:
        What was computed of each part, in all processes.

    """
    group = vars(model).get(SHARED_BY)
    if group is None:
        return [compute(part) for part in parts]
    found = {}
    for first in range(0, len(parts), group.size):
        # Each makes as many passes as the others, so that one without a part repeats one.
        mine = min(first + group.rank, len(parts) - 1)
        found[mine] = compute(parts[mine])
    everyone: dict[int, Tensor] = {}
    for theirs in group.from_all(found):
        everyone |= theirs
    return [everyone[index] for index in range(len(parts))]


def writes(model: Any) -> bool:
    """Whether this process writes what was computed in turns: the only one, or the main one."""
    group = vars(model).get(SHARED_BY)
    return group is None or bool(group.is_main)


def without_dropout(model: torch.nn.Module) -> None:
    """Set every dropout to 0, so that training mode computes what evaluation mode does.

    Args:
        model: Changed in place; its configuration stays as it is.

    """
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in module.__dict__.items():
            # A router's `jitter_noise`, as Mixtral's, is drawn in training mode alone, too.
            if isinstance(value, float) and ("drop" in name or name == "jitter_noise"):
                module.__dict__[name] = 0.0


@torch.no_grad()
def check_quiet(model: "PreTrainedModel") -> None:
    """Refuse a model whose log-probabilities are noisy in training mode without dropout even.

    Falcon asks its configuration at every pass; routers of Phi-3.5-MoE draw their experts.

    Args:
        model: Its mode stays as it is.

    Raises:
        UserError: It is noisy, and these settings may be why.

    """
    config = model.config.get_text_config()
    stated = [
        name
        for name, value in vars(config).items()
        if value and ("drop" in name or "jitter" in name)
    ]
    if not stated:
        return
    if not ask(model, _is_quiet):
        raise UserError(
            f"the architecture '{config.model_type}' is random in training mode, so that"
            f" log-probabilities would be noisy; set {' and '.join(sorted(stated))} to 0 in the"
            " model's config.json, or take another architecture"
        )


def _is_quiet(model: "PreTrainedModel") -> bool:
    ids_BT = torch.arange(8, device=model.device)[None]
    was_training = model.training
    loud, quiet = (hidden_states(model.train(mode), ids_BT) for mode in (True, False))
    model.train(was_training)
    return torch.allclose(loud, quiet, rtol=1e-3, atol=1e-3 * float(quiet.abs().max()))
