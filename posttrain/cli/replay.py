"""`posttrain replay`: retrain a learner from its stored rollouts, and compare the weights."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli.ledger import existing_ledger, ledger_option, workspace_root
from posttrain.cli.options import Documented
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import shortened

if TYPE_CHECKING:
    from posttrain.publishing.reproduction.replaying import ReplayOutcome


@click.command(cls=Documented)
@click.argument("name", metavar="RUN|STAGE@RUN", required=False)
@click.option(
    "--batch",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Replay the one batch that a run kept when a number was not finite, instead of a run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per stage.")
@ledger_option
def replay(name: str | None, batch: Path | None, as_json: bool, ledger_at: str | None) -> None:
    """Retrain from the stored rollouts alone, and say whether the weights are the same (L2).

    Nothing is sampled and no answer is verified: starting policy and rollouts come from the
    workspace or the DVC cache by their digests, the learner runs in a temporary folder with the
    run's own parameters and seed and the code as it is now. Exits with 0 if every digest is
    equal, and with 1 if one differs. `posttrain verify --level L2` does the same and remembers it.
    What is compared are digests of the weights alone, tensor by tensor; `posttrain status` and the
    lineage show that of the policy's files, which hold its config and its tokenizer, too.

    With --batch, one kept batch is passed through the weights that it met, forward and backward;
    what is not finite is named (exit code 1), or it is said that the model is not the cause (0).

    Examples:
      posttrain replay latest
      posttrain replay rl@latest
      posttrain replay rl@20261121-032733-f300bd --json
      posttrain replay --batch .posttrain/scratch/.../failed-step-000000031.safetensors

    """
    if (name is None) == (batch is None):
        raise UserError("replay: name a run, such as latest, or --batch FILE, and not both")
    if batch is not None:
        _replay_batch(batch, as_json=as_json)
        return
    assert name is not None
    from posttrain.pipeline.execution.display import Display
    from posttrain.publishing.reproduction.replaying import replay_stage, replayable

    root = workspace_root(ledger_at)
    # A project brings tasks of its own.
    sys.path.insert(0, str(root))
    with existing_ledger(ledger_at) as ledger:
        records = replayable(ledger, name, root)
    outcomes = []
    for record in records:
        outcome = replay_stage(record, root, Display())
        outcomes.append(outcome)
        click.echo(
            json.dumps(asdict(outcome) | {"equal": outcome.equal}) if as_json else _say(outcome)
        )
    if not all(outcome.equal for outcome in outcomes):
        sys.exit(1)


def _replay_batch(path: Path, *, as_json: bool) -> None:
    from posttrain.learning.training.batch_replay import replay_batch

    found = replay_batch(path)
    if as_json:
        click.echo(json.dumps(asdict(found)))
    else:
        click.echo(
            f"step {found.step}: {found.num_tokens} tokens that bear loss, in {found.num_parts}"
            f" micro-batches\n  weights   {found.weights}"
        )
        finite = "model and gradient are finite, so a term of the stage's own loss is the cause"
        for line in found.findings or (finite,):
            click.echo(f"  {line}")
    if found.findings:
        sys.exit(1)


def _say(outcome: "ReplayOutcome") -> str:
    verdict = (
        "equal: the stored rollouts alone lead to the same weights (L2)"
        if outcome.equal
        else "different: the code, the machine or the environment is not that of the run"
    )
    return (
        f"{outcome.stage} of run {outcome.run}: {outcome.path}, whose files are"
        f" {shortened(outcome.policy)}\n"
        f"  stored weights    {outcome.stored}\n"
        f"  replayed weights  {outcome.replayed}\n"
        f"  {verdict}"
    )
