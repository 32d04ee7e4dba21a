"""Whether this machine has the device that a recipe asks for; nothing is imported to find out."""

from pathlib import Path

from posttrain.pipeline.recipe_values import RunSettings

_NODES = ("nvidia[0-9]*", "dxg", "kfd")
"""By which torch reaches a GPU: of NVIDIA, of Windows' host, of AMD."""


def note_on_gpu(run: RunSettings, devices: Path = Path("/dev")) -> str | None:
    """Say that a recipe asks for a GPU and there is none.

    Args:
        run: How the recipe's stages are run.
        devices: Folder of the machine's devices.

    Returns:
        A sentence with the remedy; None where nothing is asked, or one is there.

    """
    if run.device != "cuda" or any(path for each in _NODES for path in devices.glob(each)):
        return None
    return (
        "run.device is cuda, and this machine has no GPU: the recipe can be planned here and not"
        " run; run it where there is one, or set run.device to cpu"
    )
