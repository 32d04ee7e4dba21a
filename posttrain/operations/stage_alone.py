"""A stage as a function, run in a folder of its own without pipeline, ledger or key."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from posttrain.stage.config import StageConfig
from posttrain.stage.context import StageContext
from posttrain.stage.spec import Dag, Reference, Stage, Task


def stage_function(task: Task) -> Callable[..., Any]:
    """Import what a task runs."""
    module, _, name = task.entry.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def run_alone(
    task: Task,
    config: StageConfig,
    inputs: Mapping[str, Path],
    folder: Path,
    *,
    seed: int = 0,
    run: Callable[..., Any] | None = None,
) -> dict[str, Path]:
    """Run a stage on one thread, without a tracker.

    Args:
        task: The stage.
        config: Its parameters.
        inputs: A path for each port that is connected.
        folder: Where outputs and checkpoints go; made where it is missing.
        seed: Of everything random in the stage.
        run: What runs in the place of the task's function, such as the same one watched.

    Returns:
        A path for each output.

    Raises:
        UserError: Parameters and inputs do not go together, as a plan would say.

    """
    if task.refuse is not None:
        name = task.package.rpartition(".")[2]
        files = {port: Reference.to_file(path) for port, path in inputs.items()}
        task.refuse(Stage(name, task, config, files), Dag())
    outputs = {name: folder / (name + port.type.suffix) for name, port in task.outputs.items()}
    context = StageContext.quiet(folder / "scratch", seed=seed)
    (run or stage_function(task))(config, inputs, outputs, context)
    return outputs
