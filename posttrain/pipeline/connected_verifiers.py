"""Which verifiers a stage is given with its problems: those of the stage that made them.

They stand beside the problems, and are followed to them through whatever chose among these since.
"""

from dataclasses import replace

from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Reference, Stage

_UNCONNECTED = "no verifiers are connected"
"""What a stage says that reads problems without them; see `read_scored_problems`."""


def connect_verifiers(dag: Dag) -> None:
    """Connect the verifiers of the stage that made the problems to what scores answers to them.

    Only a port that nothing fills is filled: a flow, or a recipe's `inputs`, may say otherwise.

    Args:
        dag: Its stages are rewired.

    Raises:
        UserError: The problems of a stage are those of several stages, each with verifiers.

    """
    for name, stage in dag.stages.items():
        for port, found in stage.task.inputs.items():
            if found.type == ArtifactKind.VERIFIERS and port not in stage.inputs:
                made = verifiers_beside(stage, dag)
                if len(made) > 1:
                    both = " and ".join(str(each.stage) for each in made)
                    raise UserError(
                        f"{name}.inputs.{port}: its problems were made by {both}, each with"
                        " verifiers of its own, and a stage reads one table of them; make the"
                        " problems in one stage, with the sources of both"
                    )
                if made:
                    dag.stages[name] = replace(stage, inputs={**stage.inputs, port: made[0]})


def verifiers_beside(stage: Stage, dag: Dag) -> list[Reference]:
    """Find the verifiers that stand beside the problems of a stage.

    Args:
        stage: Its inputs may be problems.
        dag: All stages.

    Returns:
        One reference for each stage that made some of these problems, and verifiers with them.

    """
    found: list[Reference] = []
    seen: set[tuple[str, str]] = set()
    left = [each for each in stage.inputs.values() if each.type == ArtifactKind.PROBLEMS]
    while left:
        read = left.pop(0)
        place = str(read.stage), str(read.output)
        if place in seen or read.stage not in dag.stages:
            continue
        seen.add(place)
        maker = dag.stages[read.stage]
        outputs = maker.task.outputs.items()
        beside = [name for name, port in outputs if port.type == ArtifactKind.VERIFIERS]
        if beside:
            found += [each for each in [maker[beside[0]]] if each not in found]
            continue
        given = {
            port: each for port, each in maker.inputs.items() if each.type == ArtifactKind.PROBLEMS
        }
        # What chooses among problems has them under one name before and after; others that it
        # looks at, such as held-out ones, are not among them.
        own = [each for port, each in given.items() if port.partition(".")[0] == read.output]
        left[:0] = own or given.values()
    return found


def without_port(stage: Stage, dag: Dag) -> str | None:
    """Say what a task lacks whose problems have verifiers beside them that it cannot be given.

    Args:
        stage: One that scores answers to problems.
        dag: All stages.

    Returns:
        A part of a sentence, with what to add; None where it has a port for them, or needs none.

    """
    made = verifiers_beside(stage, dag)
    if not made or any(p.type == ArtifactKind.VERIFIERS for p in stage.task.inputs.values()):
        return None
    return (
        f"{stage.task.package} has no port for {made[0]}, by which they are scored; add"
        ' "verifiers": Port(ArtifactKind.VERIFIERS, "what scores problems", optional=True) to its'
        ' inputs, and read them by read_problems(inputs["problems"], inputs.get("verifiers"))'
    )


def with_remedy(error: str, stage: Stage, dag: Dag) -> str:
    """Say of a stage that could not score its problems what it takes, where that is a port.

    Args:
        error: Why it failed; anything else stays as it is.
        stage: The stage.
        dag: All stages.

    """
    what, unconnected, _ = error.partition(_UNCONNECTED)
    lacks = without_port(stage, dag) if unconnected else None
    return error if lacks is None else f"{what}{lacks}"
