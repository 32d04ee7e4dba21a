"""What a recipe needs beside posttrain itself, programs and packages: whether it is there."""

import shutil
from collections.abc import Iterator, Mapping

from posttrain.backends.sandbox.launch import search_path
from posttrain.stage.config import configs_in
from posttrain.stage.extras import is_installed, package_line
from posttrain.stage.spec import Dag


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


def absent_packages(dag: Dag) -> Iterator[tuple[str, str]]:
    """Look for the packages that the stages of a recipe import for what stands in it.

    Args:
        dag: Its stages.

    Yields:
        What is missing, and the line that installs it.

    """
    found: dict[str, str] = {}
    for name, stage in dag.stages.items():
        for config in configs_in(stage.config):
            for package in sorted(config.packages()):
                found.setdefault(package, name)
    for package, stage_name in found.items():
        if not is_installed(package):
            yield f"{stage_name} needs {package}, which is not installed", package_line(package)
