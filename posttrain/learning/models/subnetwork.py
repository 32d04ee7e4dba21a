"""A subnetwork: the weights of a model that training may move, all others staying bit for bit.

It lies beside the weights, as a mask of each tensor, and holds for whoever trains that model next;
what is trained of it is saved without.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from posttrain.learning.models.subnetwork_file import FILE, refuse_shared_subnetwork
from posttrain.stage.errors import UserError, first_line


class Subnetwork:
    """Lets a model's gradients reach the weights of a mask alone, and puts the others back.

    Gradients are masked as they come, so that their norm and an optimizer's moments are those of
    the subnetwork. What moves the others nevertheless (weight decay, the orthogonalized updates of
    Muon) is undone after every step.

    Source: Mukherjee et al., arXiv 2505.11711 (the subnetwork, trained in isolation): the
    gradient of a weight outside of the mask is 0.
    """

    def __init__(self, model: nn.Module, masks: Mapping[str, Tensor]) -> None:
        """Hold the weights as they are now; those that no mask names are trained as ever.

        Args:
            model: About to be trained.
            masks: By the name of a tensor, True where it may move, of its shape.

        Raises:
            UserError: A mask is of no tensor of the model, or of one that is not trained.

        """
        parameters = _parameters(model, masks)
        frozen = next((name for name in masks if not parameters[name].requires_grad), None)
        if frozen is not None:
            raise UserError(
                f"the subnetwork has a mask of '{frozen}', and adapters are trained in the place of"
                " weights; leave learner.lora out, or train a model without a subnetwork"
            )
        self._held = [
            (parameters[name], mask.to(parameters[name].device), parameters[name].detach().clone())
            for name, mask in masks.items()
        ]
        for parameter, mask, _ in self._held:
            parameter.register_post_accumulate_grad_hook(_masked_by(mask))  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def restore(self) -> None:
        """Put back what is outside of the masks."""
        for parameter, mask, start in self._held:
            parameter.copy_(torch.where(mask, parameter, start))


def _parameters(model: nn.Module, masks: Mapping[str, Tensor]) -> dict[str, nn.Parameter]:
    """Look up a model's tensors; refuse masks that are of none of them."""
    parameters = dict(model.named_parameters())
    for name, mask in masks.items():
        if name not in parameters or parameters[name].shape != mask.shape:
            raise UserError(
                f"the subnetwork has a mask of '{name}', of which the model has no tensor of"
                f" the shape {list(mask.shape)}; train the model that it was made for, and"
                " without learner.lora"
            )
    return parameters


def _masked_by(mask: Tensor):  # type: ignore[no-untyped-def]  # noqa: ANN202 - torch's own type
    def hook(parameter: Tensor) -> None:
        assert parameter.grad is not None
        # Not a product: an infinite gradient outside is none.
        parameter.grad.masked_fill_(~mask, 0.0)

    return hook


def moved_weights(
    before: nn.Module, after: nn.Module, *, precision: torch.dtype, tolerance: float
) -> dict[str, Tensor]:
    """Find the weights that differ between two models.

    Args:
        before: A model.
        after: Another one of the same architecture.
        precision: In which two weights are compared.
        tolerance: Differences up to this count as none.

    Returns:
        By the name of each tensor True where it moved.

    Raises:
        UserError: The models have other tensors.

    """
    one, other = dict(before.named_parameters()), dict(after.named_parameters())
    wrong = sorted(one.keys() ^ other.keys())
    wrong += [name for name in one if name in other and one[name].shape != other[name].shape]
    if wrong:
        raise UserError(
            f"subnetwork: before and after have not the same weights, such as {wrong[0]}; take"
            " models of one architecture"
        )
    with torch.inference_mode():
        return {
            n: (other[n].to(precision).float() - one[n].to(precision).float()).abs() > tolerance
            for n in one
        }


def write_subnetwork(masks: Mapping[str, Tensor], folder: Path) -> None:
    """Write masks beside the weights of a model.

    Args:
        masks: By the name of a tensor, True where it may move.
        folder: Of the model.

    """
    from safetensors.torch import save_file

    save_file({name: mask.contiguous() for name, mask in masks.items()}, folder / FILE)


def subnetwork_of(model: nn.Module) -> Subnetwork | None:
    """Attach the subnetwork that lies beside a model's weights.

    Args:
        model: As it was loaded.

    Returns:
        What holds the other weights; None where the whole model is trained.

    Raises:
        UserError: It does not fit the model, or several processes share the training, of which
            each has a part of every tensor.

    """
    folder = getattr(model, "name_or_path", "")
    if not folder or not (Path(folder) / FILE).is_file():
        return None
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        refuse_shared_subnetwork(torch.distributed.get_world_size(), where=str(folder))
    return Subnetwork(model, _read(Path(folder) / FILE))


def carry_subnetwork(source: Path, model: nn.Module, folder: Path) -> None:
    """Write the subnetwork that lies in one folder of a model into another one; else nothing.

    Args:
        source: Where the model was loaded from.
        model: Whose tensors the masks are of.
        folder: Where it was saved.

    Raises:
        UserError: The masks cannot be read, or are of another model.

    """
    if (source / FILE).is_file():
        masks = _read(source / FILE)
        _parameters(model, masks)
        write_subnetwork(masks, folder)


def _read(file: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        masks: dict[str, Tensor] = load_file(file)
    except SafetensorError as error:
        raise UserError(
            f"{file}: no masks can be read: {first_line(error)}; make the subnetwork again"
        ) from None
    return masks
