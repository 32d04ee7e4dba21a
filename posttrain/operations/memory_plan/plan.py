"""The peak of every stage of a recipe, what its checkpoints take, and what would make it fit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from posttrain.learning.memory.asked import StageQuestion
from posttrain.learning.memory.checkpoints import CheckpointSize, checkpoint_size
from posttrain.learning.memory.peak import Moment, peak_of
from posttrain.learning.memory.stages import TASKS
from posttrain.operations.memory_plan.machine import Machine
from posttrain.operations.memory_plan.models import ModelFinder, split_models
from posttrain.operations.memory_plan.savings import Saving, all_at_once, best_savings
from posttrain.stage.errors import UserErrors
from posttrain.stage.formatting import bytesize
from posttrain.stage.spec import Dag, Stage


@dataclass(frozen=True)
class StageMemory:
    """What one process of a stage takes."""

    stage: str
    peak: Moment
    room: int
    processes: int
    checkpoint: CheckpointSize | None
    """None where nothing is trained."""
    savings: tuple[Saving, ...] = ()
    """Of a stage that does not fit: what would help most."""
    with_savings: int = 0
    """Bytes of the peak with all of them."""

    @property
    def fits(self) -> bool:
        """Whether there is room."""
        return self.peak.total <= self.room

    def refusal(self) -> str:
        """Say that it does not fit, and what would help: one sentence."""
        what = f"{self.stage} does not fit: at its peak ({self.peak.name}) "
        what += "each of its processes" if self.processes > 1 else "it"
        what += f" takes {bytesize(self.peak.total)}, and there are {bytesize(self.room)}"
        if not self.savings:
            return f"{what}; no setting makes it smaller: take a smaller model, or a larger machine"
        helps = ", ".join(
            f"{each.told(self.stage)} (saves {bytesize(each.saves)})" for each in self.savings
        )
        fits = "fits" if self.with_savings <= self.room else "is still too much"
        return (
            f"{what}; set {helps}: together they leave {bytesize(self.with_savings)}, which {fits}"
        )


@dataclass(frozen=True)
class MemoryPlan:
    """All stages that train or sample, and what is counted against."""

    machine: Machine
    stages: tuple[StageMemory, ...]
    uncounted: tuple[str, ...]
    """Stages that read or make a model, and of whose task nothing is known."""

    def refuse(self) -> None:
        """Refuse stages that do not fit.

        Raises:
            UserErrors: A sentence for each of them.

        """
        refusals = [each.refusal() for each in self.stages if not each.fits]
        if refusals:
            raise UserErrors(refusals)


def plan_memory(
    dag: Dag, finder: ModelFinder, machine: Machine, *, prompt_tokens: int
) -> MemoryPlan:
    """Count every stage of a flow.

    Args:
        dag: The flow.
        finder: Of the architectures.
        machine: That the stages are to fit into.
        prompt_tokens: Of the longest prompt before an answer.

    Returns:
        What each takes, in the order of the flow.

    """
    asked = list(_asked(dag, finder, machine, prompt_tokens))
    return MemoryPlan(
        machine,
        tuple(_counted(stage, each, machine) for stage, each in asked),
        tuple(_uncounted(dag)),
    )


def _asked(
    dag: Dag, finder: ModelFinder, machine: Machine, prompt_tokens: int
) -> Iterator[tuple[Stage, StageQuestion]]:
    for stage in dag.stages.values():
        if _task(stage) not in TASKS:
            continue
        policy, others = split_models(finder.models(stage))
        yield (
            stage,
            StageQuestion(
                config=stage.config,
                policy=policy,
                models=others,
                device=machine.device,
                processes=stage.resources.processes if stage.task.parallel else 1,
                prompt_tokens=prompt_tokens,
                capacity=machine.capacity,
            ),
        )


def _task(stage: Stage) -> str:
    """Name of a task of this package; one from elsewhere keeps its folders."""
    return stage.task.package.removeprefix("tasks.")


def _counted(stage: Stage, asked: StageQuestion, machine: Machine) -> StageMemory:
    count = TASKS[_task(stage)]

    def peak(each: StageQuestion) -> int:
        return peak_of(count(each)).total

    counted = StageMemory(
        stage.name,
        peak_of(count(asked)),
        machine.room(asked.processes),
        asked.processes,
        checkpoint_size(asked) if hasattr(stage.config, "learner") else None,
    )
    if counted.fits:
        return counted
    savings = best_savings(asked, peak, gpus=machine.count)
    left = peak(all_at_once(asked, savings))
    return replace(counted, savings=tuple(savings), with_savings=left)


def _uncounted(dag: Dag) -> Sequence[str]:
    return [
        name
        for name, stage in dag.stages.items()
        if _task(stage) not in TASKS
        and (hasattr(stage.config, "learner") or hasattr(stage.config, "engine"))
    ]
