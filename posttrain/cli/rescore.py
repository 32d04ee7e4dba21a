"""`posttrain rescore`: what another reward would have paid for the rollouts of a run."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli.options import Documented, overrides_option, plain_table, recipe_argument
from posttrain.stage.artifact_kinds import ArtifactKind
from posttrain.stage.errors import UserError, nearest, shown

if TYPE_CHECKING:
    from posttrain.learning.rl.rescore import ComponentFigures, Rescored
    from posttrain.stage.spec import Dag, Reference, Stage


@click.command(cls=Documented)
@recipe_argument
@overrides_option
@click.option("--stage", "name", help="The stage whose rollouts they are [default: the only one].")
@click.option(
    "--rollouts",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Another table of rollouts than the one that the stage wrote last.",
)
@click.option(
    "--problems",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Another table of problems than the one that the stage is wired to.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of a table.")
def rescore(
    recipe: Path,
    overrides: tuple[str, ...],
    name: str | None,
    rollouts: Path | None,
    problems: Path | None,
    as_json: bool,
) -> None:
    """Pay the rollouts of a run by the reward that RECIPE states now, and compare.

    Nothing is sampled, learned or written: each component of `rl.reward`, as the recipe and --set
    have it, scores the stored texts in the order of their steps, and the combination pays them. A
    line a component: its mean and deviation, the share that it could not judge, and how it goes
    with what was paid (Pearson's correlation). Below: the rewards then and now, the share that
    counts as right, and how many pairs of answers to one problem would have been paid in another
    order, which is what a group's advantages hang on. Judges and reward models are asked. Exits
    with 0, and with 2 where the recipe, a table or a problem is missing.

    Examples:
      posttrain rescore                                   the recipe's own reward: nothing turns
      posttrain rescore --set rl.reward.truncated=fails   what if cut-off answers had failed
      posttrain rescore stricter.yaml --rollouts data/rl/rollouts.parquet
      posttrain rescore --set 'rl.reward={components: {correct: verifier, brief: group_length}}'

    """
    from posttrain.pipeline.recipe import load_recipe
    from posttrain.pipeline.workspace import Workspace
    from posttrain.stage.slots import plugged

    loaded = load_recipe(recipe, overrides)
    dag = loaded.resolve(Workspace.of(loaded).root)
    stage = _stage_of(dag, name)
    paths = {port: _place(loaded.directory, dag, each) for port, each in stage.inputs.items()}
    written = loaded.directory / stage.outputs()[_rollouts_of(stage)]
    with plugged(loaded.plugins):
        found = _rescored(stage, rollouts or written, problems or paths["problems"], inputs=paths)
    if as_json:
        click.echo(json.dumps(asdict(found)))
    else:
        _print(found)


def _stage_of(dag: "Dag", name: str | None) -> "Stage":
    """The stage that is named, or the only one that writes rollouts."""
    known = {each.name: each for each in dag.stages.values() if _rollouts_of(each)}
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name in known:
        return known[name]
    if not known:
        raise UserError("rescore: no stage of this recipe writes rollouts; those of RL do")
    if name is None:
        told = ", ".join(known)
        raise UserError(f"rescore: name the stage by --stage; those that write rollouts: {told}")
    hint = nearest(name, known) or f"; those that write rollouts: {', '.join(known)}"
    raise UserError(f"rescore: no stage '{name}' writes rollouts{hint}")


def _rollouts_of(stage: "Stage") -> str:
    """The name of the stage's output that holds rollouts; empty where there is none."""
    made = stage.task.outputs.items()
    return next((name for name, port in made if port.type == ArtifactKind.ROLLOUTS), "")


def _place(directory: Path, dag: "Dag", reference: "Reference") -> Path:
    """Where an input of a stage lies."""
    if reference.stage is None:
        assert reference.path is not None
        return reference.path
    return directory / dag.stages[reference.stage].outputs()[str(reference.output)]


def _rescored(
    stage: "Stage", rollouts: Path, problems: Path, *, inputs: Mapping[str, Path]
) -> "Rescored":
    from posttrain.data.schemas import ROLLOUTS
    from posttrain.data.tables import read_table
    from posttrain.learning.models.record import answer_lengths_in, limit_for
    from posttrain.learning.rewards.port_models import PortModels
    from posttrain.learning.rewards.verify import VerifierCache
    from posttrain.learning.rl.config import RlConfig
    from posttrain.learning.rl.rescore import rescore as pay_again
    from posttrain.learning.rollouts.scoring import read_problems

    config = stage.config
    if not isinstance(config, RlConfig):
        raise UserError(f"rescore: stage '{stage.name}' has no rl.reward to pay by")
    for path, option in ((rollouts, "--rollouts"), (problems, "--problems")):
        if not path.is_file():
            raise UserError(
                f"rescore: {shown(path)} is not there; run the recipe first, or name a table by"
                f" {option}"
            )
    policy = inputs.get("policy")
    if config.max_tokens == "auto" and policy is not None and (policy / "config.json").is_file():
        # As the run chose it; without the policy, a component for length asks for a limit.
        config = config.model_copy(update={"max_tokens": limit_for(answer_lengths_in(policy))})
    verifiers = inputs.get("verifiers")
    beside = verifiers if verifiers is not None and verifiers.is_file() else None
    return pay_again(
        config,
        read_table(rollouts, ROLLOUTS),
        {problem.id: problem for problem in read_problems(problems, beside)},
        verify=VerifierCache(),
        models=PortModels(inputs),
    )


def _print(found: "Rescored") -> None:
    from rich.console import Console

    table = plain_table(
        "component", "mean", "deviation", "unjudged", "with paid",
        right=("mean", "deviation", "unjudged", "with paid"),
    )  # fmt: skip
    for each in (*found.components, found.reward, found.paid):
        table.add_row(*_cells(each))
    Console().print(table)
    click.echo(
        "deviation: over rollouts; unjudged: share without a score; with paid: correlation with"
        " what the run paid"
    )
    before, after = found.solved
    click.echo(
        f"{found.num_rollouts} rollouts in {found.num_groups} groups; right then"
        f" {_number(before)}, now {_number(after)}"
    )
    if found.turned is None:
        click.echo("no two answers to one problem were paid differently")
    else:
        click.echo(
            f"{found.turned:.1%} of the pairs of answers to one problem that were paid differently"
            " would be paid in another order"
        )


def _cells(each: "ComponentFigures") -> tuple[str, ...]:
    return (
        each.name,
        _number(each.mean),
        _number(each.deviation),
        f"{each.unjudged:.1%}",
        _number(each.correlation),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
