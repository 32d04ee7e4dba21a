"""Synthesize: problems with reference answers, and worked solutions of a teacher, all verified."""

from posttrain.data.sources.config import remedies_without_solutions
from posttrain.learning.rewards.references import refuse_unread_rows
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.synthesize.config import SynthesizeConfig

_HANDS_ON = frozenset({"tasks.curate"})
"""Tasks whose solutions are some of those that they read; of another one nothing is certain."""


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse rows that are no problems, answers that no verifier reads, nothing to learn from."""
    assert isinstance(stage.config, SynthesizeConfig)
    config = stage.config
    refuse_unread_rows(stage, config.sources)
    learners = _learners(stage.name, dag)
    if not learners:
        return
    files = {name.partition(".")[2]: file.path for name, file in stage.inputs.items() if file.path}
    if remedies := remedies_without_solutions(config.sources, config.teacher, files):
        # A name that nobody knows is solved by nobody either, and is what should be said.
        config.check_names(stage.name)
        raise UserError(
            f"{stage.name}: no source comes with solutions, so {' and '.join(learners)} would have"
            f" nothing to learn from; {', or '.join(remedies)}, or train by RL alone:"
            " flow: flows.rl_from_base, with import_model and without pretrain"
        )


def _learners(name: str, dag: Dag) -> list[str]:
    """Stages that train on the solutions, as they come or as a stage between left them."""
    reached, found = {name}, []
    for each in dag.order():
        stage = dag.stages[each]
        needs = [port for port, known in stage.task.inputs.items() if _is_needed(known)]
        if any(port in needs and ref.stage in reached for port, ref in stage.inputs.items()):
            if stage.task.package in _HANDS_ON:
                reached.add(each)
            elif any(port.type is ArtifactKind.CHECKPOINT for port in stage.task.outputs.values()):
                found.append(each)
    return found


def _is_needed(port: Port) -> bool:
    return port.type is ArtifactKind.COMPLETIONS and not port.optional


TASK = Task(
    package="tasks.synthesize",
    config=SynthesizeConfig,
    inputs={
        "files": Port(ArtifactKind.SOURCE, "local files of the sources", many=True, optional=True)
    },
    outputs={
        "problems": Port(ArtifactKind.PROBLEMS, "problems to train on"),
        "heldout": Port(ArtifactKind.PROBLEMS, "problems to evaluate on; no prompt is in both"),
        "verifiers": Port(ArtifactKind.VERIFIERS, "what scores the problems of each source"),
        "corpus": Port(ArtifactKind.COMPLETIONS, "every worked solution, right and wrong"),
        "traces": Port(ArtifactKind.COMPLETIONS, "solutions that the verifier accepted"),
        "rejected": Port(ArtifactKind.DROPPED, "solutions that it did not, with the reason"),
    },
    refuse=_refuse,
)
