"""The file of a subnetwork beside a model's weights, and who may train such a model."""

from posttrain.stage.errors import UserError

FILE = "subnetwork.mask"
"""In the model's folder, in the format of safetensors; not called so, as it holds no weights."""


def refuse_shared_subnetwork(processes: int, *, where: str) -> None:
    """Refuse to train a subnetwork in several processes, of which each has a part of every tensor.

    Args:
        processes: That would train together.
        where: The stage that would train.

    Raises:
        UserError: There are several.

    """
    if processes > 1:
        raise UserError(
            f"{where}: a subnetwork is trained by one process alone; set resources.processes to 1"
        )
