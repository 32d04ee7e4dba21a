"""Refuse a stage that plays its problems in another world than posed them, before anything runs."""

from collections.abc import Iterator

from posttrain.data.sources.base import Source
from posttrain.learning.episodes.environments.base import Environment
from posttrain.learning.rl.producers.base import Producer
from posttrain.pipeline.connected_verifiers import verifiers_beside
from posttrain.stage.config import StageConfig, configs_in
from posttrain.stage.errors import UserError
from posttrain.stage.spec import Dag, Stage


def refuse_other_worlds(dag: Dag) -> None:
    """Refuse an environment that cannot play the problems of its stage, or that says otherwise.

    A world plays what it posed, and what it posed is judged by nobody else. Its settings are in the
    problems: those of a stage would change nothing.

    Args:
        dag: Checked stages, with verifiers connected to what attempts problems.

    Raises:
        UserError: Stage, environment and source do not fit, with the remedy.

    """
    for stage in dag.stages.values():
        if (found := _played_in(stage.config)) is None:
            continue
        where, environment = f"{stage.name}.{found[0]}", found[1]
        for maker, source in _sources_of(stage, dag):
            told = f"{where}: {stage.name} attempts problems of"
            _refuse_source(told, environment, source, f"source '{source.name}' of {maker}")
            for world in environment.worlds_played():
                _refuse_settings(where, world, source, maker)


def _played_in(config: StageConfig) -> tuple[str, Environment] | None:
    """What answers in a stage, and where that stands; None where nothing is attempted."""
    producer = getattr(config, "producer", None)
    if isinstance(producer, Producer):
        environment, where = producer.played_in(), "producer.environment"
    else:
        environment, where = getattr(config, "environment", None), "environment"
    return (where, environment) if isinstance(environment, Environment) else None


def _sources_of(stage: Stage, dag: Dag) -> Iterator[tuple[str, Source]]:
    """The sources of a stage's problems, each with the stage that reads it."""
    for made in verifiers_beside(stage, dag):
        maker = dag.stages[str(made.stage)]
        for each in configs_in(maker.config):
            if isinstance(each, Source):
                yield maker.name, each


def _refuse_source(told: str, environment: Environment, source: Source, whose: str) -> None:
    worlds = source.poses()
    if worlds is None:
        return
    kinds = sorted({world.kind for world in worlds})
    played = [world.kind for world in environment.worlds_played()]
    if played and not (kinds and {*kinds} <= {*played}):
        posed = f"the world {kinds[0]}" if kinds else "no world"
        raise UserError(
            f"{told} {whose}, which {posed} has posed, and {environment.kind} plays those that it"
            f" posed itself; name {kinds[0] if kinds else 'single'} there, or take"
            f" {{kind: world, world: {environment.kind}}} as the source"
        )
    if kinds and not played:
        raise UserError(
            f"{told} {whose}, and what is said of these only their world can judge; name the world"
            f" {kinds[0]} there, not {environment.kind}"
        )


def _refuse_settings(where: str, world: Environment, source: Source, maker: str) -> None:
    posed = next((each for each in source.poses() or () if each.kind == world.kind), None)
    for name in (
        sorted(world.model_fields_set - {"kind"} - world.SET_BY_STAGES) if posed is not None else ()
    ):
        if getattr(world, name) != getattr(posed, name):
            raise UserError(
                f"{where}.{name}: {getattr(world, name)!r} would change nothing, as a problem"
                " brings along what its world was set to; leave it out, or set it in source"
                f" '{source.name}' of {maker}"
            )
