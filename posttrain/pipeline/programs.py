"""Programs of the system that a recipe needs, beside packages: whether they are there."""

import shutil
from collections.abc import Iterator, Mapping

from posttrain.backends.sandbox.launch import search_path
from posttrain.stage.config import configs_in
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
