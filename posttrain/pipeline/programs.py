"""What a recipe needs of a machine, a GPU, cores, programs and packages: whether it is there."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from posttrain.backends.sandbox.launch import search_path
from posttrain.learning.models.attention import FLASH
from posttrain.pipeline.recipe_values import RunSettings
from posttrain.pipeline.systems import cores
from posttrain.stage.config import configs_in
from posttrain.stage.extras import is_installed, package_line
from posttrain.stage.spec import Dag

_NODES = ("nvidia[0-9]*", "dxg", "kfd")
"""By which torch reaches a GPU: of NVIDIA, of Windows' host, of AMD."""

_FLASH = "flash-attn"
"""In no extra, as it is built against the torch that is there."""


def notes_on_machine(run: RunSettings, dag: Dag, *, makes: bool) -> Iterator[str]:
    """Say what this machine lacks of what a recipe asks for.

    Args:
        run: How its stages are run.
        dag: They themselves.
        makes: Whether there is a stage to run.

    Yields:
        Sentences, with what to do where something can be done here.

    """
    if makes and (without_gpu := note_on_gpu(run)):
        yield without_gpu
    here = cores()
    if run.threads > here:
        yield f"run.threads is {run.threads}, and this machine has {here} cores"
    for name, stage in dag.stages.items():
        if run.device == "cpu" and stage.resources.processes > here:
            yield f"{name} asks for {stage.resources.processes} processes on {here} cores"
    for what, line in (*absent_packages(dag, run.device), *absent_programs(programs_of(dag))):
        yield f"{what}; run: {line}"


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


def programs_of(dag: Dag) -> dict[str, tuple[str, str]]:
    """Find the programs that the stages of a recipe start.

    Args:
        dag: Its stages.

    Returns:
        By program, the first stage that names it, and the line that installs it.

    """
    found: dict[str, tuple[str, str]] = {}
    for name, stage in dag.stages.items():
        for config in configs_in(stage.config):
            found |= {p: (name, line) for p, line in config.PROGRAMS.items() if p not in found}
    return found


def absent_programs(programs: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Look for programs where sandboxes and stages do.

    Args:
        programs: As `programs_of` found them.

    Yields:
        What is missing, and the line that installs it.

    """
    for program, (stage, line) in programs.items():
        if shutil.which(program) is None and shutil.which(program, path=search_path()) is None:
            yield f"{stage} needs {program}, which is not installed", line


def absent_packages(dag: Dag, device: str) -> Iterator[tuple[str, str]]:
    """Look for the packages that the stages of a recipe import for what stands in it.

    Args:
        dag: Its stages.
        device: What they run on, `cpu` or `cuda`.

    Yields:
        What is missing, and the line that installs it.

    """
    found: dict[str, str] = {}
    for name, stage in dag.stages.items():
        for config in configs_in(stage.config):
            asked = {_FLASH} if getattr(config, "attention", None) == FLASH else frozenset()
            for package in sorted(config.packages() | asked):
                found.setdefault(package, name)
    for package, stage_name in found.items():
        if not is_installed(package):
            yield (
                f"{stage_name} needs {package}, which is not installed",
                package_line(package, device=device),
            )
