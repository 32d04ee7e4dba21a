"""How a stage's function is called: what its process is set up with, and what it is handed.

Both decide a stage's bytes, so they are in every key; nothing else should be here.
"""

from collections.abc import Callable, Mapping

from posttrain.pipeline.determinism import keep_freed_memory, make_deterministic
from posttrain.pipeline.execution.assignment import Assignment
from posttrain.stage.context import StageContext


def set_up(assignment: Assignment) -> None:
    """Set the process up before anything of the stage is imported."""
    keep_freed_memory()
    make_deterministic(assignment.seed, assignment.threads, assignment.kernels)


def perform(
    assignment: Assignment, emit: Callable[[Mapping[str, object]], None]
) -> Mapping[str, float]:
    """Run the task in this process, which is one of `processes`; its module is imported now.

    Args:
        assignment: What the stage is given.
        emit: Takes what it reports.

    Returns:
        Its metrics by name.

    """
    context = StageContext(
        seed=assignment.seed,
        threads=assignment.threads,
        device=assignment.device,
        scratch=assignment.scratch,
        emit=emit,
        processes=assignment.processes,
        ray=assignment.ray,
    )
    run = assignment.function()
    metrics: Mapping[str, float] | None = run(
        assignment.config, assignment.inputs, assignment.outputs, context
    )
    return metrics or {}
