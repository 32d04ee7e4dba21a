"""`posttrain up`, `down` and `worker`: the servers of this machine."""

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from posttrain.cli.options import Documented
from posttrain.provenance.ledger.location import project_root
from posttrain.stage.errors import UserError

_TAIL_SECONDS = 240.0

_PORT = click.IntRange(1, 65535)

limit_option = click.option(
    "--limit", type=click.IntRange(min=1), default=2, show_default=True, help="Runs at once."
)


@click.command(cls=Documented)
@click.option(
    "--prefect-port", type=_PORT, default=4200, show_default=True, help="Port of Prefect's pages."
)
@click.option(
    "--mlflow-port", type=_PORT, default=5000, show_default=True, help="Port of MLflow's pages."
)
@click.option(
    "--database",
    envvar="POSTTRAIN_PREFECT_DATABASE",
    help="PostgreSQL URL of Prefect's database [default: SQLite under .posttrain/prefect].",
)
@click.option(
    "--mlflow-database",
    envvar="MLFLOW_BACKEND_STORE_URI",
    help="PostgreSQL URL of MLflow's database [default: SQLite in .posttrain].",
)
@limit_option
@click.option("--detach", is_flag=True, help="Return once all services answer.")
def up(
    prefect_port: int,
    mlflow_port: int,
    database: str | None,
    mlflow_database: str | None,
    limit: int,
    detach: bool,
) -> None:
    """Start a Prefect server, an MLflow server and the worker of the schedules, on loopback.

    A service that ends is started again. State is in .posttrain, logs in .posttrain/services.
    POSTTRAIN_LEDGER and POSTTRAIN_SCHEDULES put the ledger and the journal into PostgreSQL as well.

    Examples:
      posttrain up                    until Ctrl-C or posttrain down
      posttrain up --detach           in the background, once all services answer
      posttrain up --database postgresql://me@db/prefect --mlflow-database postgresql://me@db/mlflow

    """
    from posttrain.operations.services.plan import DATABASES, ServicePlan
    from posttrain.operations.services.supervisor import Supervisor
    from posttrain.pipeline.systems import refuse_other_systems

    refuse_other_systems("servers and the worker run", platform.system())
    root = project_root(Path.cwd())
    plan = ServicePlan(root, prefect_port, mlflow_port, database, mlflow_database, limit)
    # The databases' passwords go on in the environment: everybody may read a process's arguments.
    command = [sys.executable, "-m", "posttrain", "up", "--limit", str(limit)]
    command += ["--prefect-port", str(prefect_port), "--mlflow-port", str(mlflow_port)]
    given = {
        name: url for name, url in zip(DATABASES, (database, mlflow_database), strict=True) if url
    }
    environment = {**os.environ, **given}
    if detach:
        _detached(command, environment, plan.folder, root)
        return
    if environment != os.environ:
        os.execve(command[0], command, environment)
    supervisor = Supervisor(plan, _say)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: supervisor.stop())
    # MLflow opens on its pages for agents unless the address says what it is used for.
    mlflow = f"{plan.mlflow}/#/experiments?workflowType=machine_learning"
    click.echo(f"Prefect {plan.prefect}   MLflow {mlflow}   logs {plan.folder}")
    exports = " ".join(f"{name}={value}" for name, value in plan.environment().items())
    click.echo(f"For other commands: export {exports}")
    supervisor.run()
    click.echo("down")


@click.command(cls=Documented)
def down() -> None:
    """Stop what `posttrain up` started; runs that are under way go on at the next `up`."""
    from posttrain.operations.services.plan import FOLDER, NAMES
    from posttrain.operations.services.process import alive, elsewhere
    from posttrain.operations.services.supervisor import SUPERVISOR, take_down

    root = project_root(Path.cwd())
    if any(alive(root / FOLDER, name) is not None for name in (SUPERVISOR, *NAMES)):
        click.echo("stopping; a run under way keeps its last checkpoint (up to half a minute)")
    ended = take_down(root)
    for name in (SUPERVISOR, *NAMES):
        if (where := elsewhere(root / FOLDER, name)) is not None:
            file = FOLDER / f"{name}.pid"
            click.echo(f"{name} is of {where}, not signalled: posttrain down there, or rm {file}")
    click.echo(f"stopped: {', '.join(ended)}" if ended else "nothing was running")


@click.command(cls=Documented)
@limit_option
def worker(limit: int) -> None:
    """Run what is due of the schedules, until it is stopped; `posttrain up` starts one.

    Elsewhere: on a machine with a clone of the project, PREFECT_API_URL, POSTTRAIN_SCHEDULES and
    POSTTRAIN_LEDGER name the servers that are shared.
    """
    from posttrain.pipeline.execution.prefect import configure
    from posttrain.pipeline.systems import refuse_other_systems

    refuse_other_systems("a worker runs", platform.system())
    root = project_root(Path.cwd())

    configure(root / ".posttrain")
    from posttrain.operations.schedule.worker import work

    work(root, limit)


def _detached(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, root: Path
) -> None:
    """Start the supervisor as a process of its own and wait for what it says."""
    from posttrain.operations.services.supervisor import UP, UP_WITHOUT, alone

    with alone(folder):
        log = folder / "supervisor.log"
    with log.open("ab") as file:
        begun = file.tell()
        process = subprocess.Popen(
            command,
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    deadline = time.monotonic() + _TAIL_SECONDS
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        said = log.read_bytes()[begun:].decode(errors="replace").strip()
        if UP in said or UP_WITHOUT in said:
            click.echo(said)
            if UP_WITHOUT in said:
                raise UserError(said.splitlines()[-1].partition(" ")[2])
            return
        if ended:
            lines = said.splitlines() or [f"the supervisor ended; see {log}"]
            raise UserError(lines[-1].removeprefix("error: "))
        time.sleep(0.2)
    raise UserError(f"the services did not come up; see {log}, then posttrain down")


def _say(line: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {line}")
