"""`posttrain`: finds the verb, runs it, and turns a `UserError` into a sentence and exit code 2."""

import gc
import importlib
import io
import signal
import sys
from collections.abc import Mapping
from typing import NamedTuple

import click

from posttrain import __version__
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.escapes import printable
from posttrain.stage.interrupts import SENTENCE, Interrupted, end_now, hear, interrupt

_SESSION = "posttrain.pipeline.execution.session"
_EXECUTOR = "posttrain.pipeline.execution.executor"
_SCHEMA = "posttrain.pipeline.recipe_schema"
_METHODS = "posttrain.methods.find"
_SCHEDULES = "posttrain.operations.schedule.recipes"


class Verb(NamedTuple):
    """Where a command is in this package, and the line that `--help` shows without its import.

    What its work needs, which its help page does not, is imported `ahead` of the work: in the midst
    of an import a signal can only end all.
    """

    target: str
    help: str
    ahead: str = ""

    def load(self) -> click.Command:
        """Import the command."""
        module, _, attribute = self.target.partition(":")
        command = getattr(importlib.import_module(f"posttrain.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command


VERBS: Mapping[str, Mapping[str, Verb]] = {
    "Start": {
        "init": Verb("init:init", "Write a new project: recipe, flow, task and tests."),
    },
    "Run": {
        "run": Verb("run:run", "Run a recipe: only the stages that are not up to date.", _EXECUTOR),
        "plan": Verb("plan:plan", "Show what would run, why, and how long it took last.", _SESSION),
        "adopt": Verb("adopt:adopt_", "Take over what an older posttrain recorded.", _SESSION),
        "status": Verb("status:status", "Show each stage's state and its artifacts.", _SESSION),
        "compile": Verb(
            "compile:compile_", "Write dvc.yaml and params.yaml from the recipe.", _SESSION
        ),
        "stage": Verb("stage:stage", "Run one stage, as the generated dvc.yaml does.", _EXECUTOR),
        "serve": Verb("serve:serve", "Serve a policy or a release to any OpenAI client."),
    },
    "Look": {
        "ui": Verb("ui:ui", "Look at runs, rollouts, data and lineage in a browser."),
        "diff": Verb(
            "diff:diff", "Compare two runs, releases or branches: figures, gates.", _SESSION
        ),
        "logs": Verb("logs:logs", "Print what stages print, or follow it."),
        "cost": Verb("cost:cost", "Show what a run took: time, energy, tokens, money.", _SESSION),
        "why": Verb("why:why", "Name what made a stage run again, or will make it.", _SESSION),
        "lineage": Verb("lineage:lineage", "Follow artifacts; impact, diff, recall."),
        "method": Verb(
            "method:method", "List, show and test the catalog of published methods.", _METHODS
        ),
        "parts": Verb(
            "parts:parts", "List what a recipe's slots take: kind, purpose, source.", _SCHEMA
        ),
        "env": Verb("env:env", "List environments and worlds, show one, play in one."),
        "agent-docs": Verb("agent_docs:agent_docs", "Print what a coding agent needs to know."),
        "schema": Verb("schema:schema", "Print the JSON schema of recipes, for editors.", _SCHEMA),
        "data": Verb("data:data", "Look at a file of rows: its format, its lengths, a row."),
        "rows": Verb("rows:rows", "Look at rows of a table and trace their origin."),
        "audit": Verb("ledger:audit", "List stages that one key gave two results."),
        "replay": Verb("replay:replay", "Retrain from stored rollouts and compare the weights."),
        "rescore": Verb("rescore:rescore", "Pay stored rollouts by another reward, and compare."),
        "verify": Verb("verify:verify", "Run a run again elsewhere: does it hold at L0, L2, L3?"),
        "sandbox": Verb("sandbox:sandbox", "Run one program where it can reach nothing."),
    },
    "Schedule": {
        "schedule": Verb(
            "schedule:schedule", "Run recipes by the clock; see what became of each.", _SCHEDULES
        ),
        "up": Verb("up:up", "Start Prefect, MLflow and the worker on this machine."),
        "down": Verb("up:down", "Stop what `up` started."),
        "worker": Verb("up:worker", "Run what is due of the schedules."),
    },
    "Share": {
        "push": Verb("share:push", "Send a recipe's artifacts and the ledger to the DVC remote."),
        "pull": Verb("share:pull", "Fetch what others pushed; nothing is run."),
        "hub": Verb("hub:hub", "Tables, adapters and models for the Hugging Face hub.", _SESSION),
    },
    "Keep": {
        "doctor": Verb("doctor:doctor", "Say what is wrong with this machine or project."),
        "gc": Verb("gc:gc", "Free disk space: what nothing needs goes, by budget."),
        "release": Verb("release:release", "Make, verify, rebuild and promote signed releases."),
        "ledger": Verb("ledger:ledger", "Export or import the ledger as JSON lines."),
        "mlflow": Verb("mlflow:mlflow", "Make the MLflow view anew from the ledger.", _SESSION),
    },
}


RENAMED = {"algorithm": "posttrain method"}
"""Verbs of older versions, and what does their work."""


class VerbGroup(click.Group):
    """A click group that imports a verb's module only when that verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb, in the order of the sections."""
        return [name for section in VERBS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one verb that is used."""
        verb = _find(cmd_name)
        return verb.load() if verb else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest verb where there is none of that name."""
        if args and not args[0].startswith("-") and _find(args[0]) is None:
            now = RENAMED.get(args[0])
            hint = f"; it is `{now}` now" if now else nearest(args[0], self.list_commands(ctx))
            raise UserError(f"there is no command '{args[0]}'{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the verbs by section, from their one-line descriptions."""
        for title, section in VERBS.items():
            with formatter.section(title):
                formatter.write_dl([(name, verb.help) for name, verb in section.items()])


def _find(name: str) -> Verb | None:
    return next((section[name] for section in VERBS.values() if name in section), None)


@click.group(
    cls=VerbGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: posttrain plan, then posttrain run. Every verb has its own --help.",
)
@click.version_option(__version__, prog_name="posttrain")
def cli() -> None:
    """Versioned pipelines for LLM post-training.

    A recipe (recipe.yaml) sets the parameters of a flow (flows/*.py). Stages run when their code,
    parameters, inputs or environment changed; every artifact is kept by DVC, every metric goes to
    MLflow, and Prefect runs and schedules the whole.
    """


def _write_what_cannot_be_spelled() -> None:
    """Escape what the terminal's encoding lacks (`LC_ALL=C`), in place of failing at it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """Entry point of the console script and of `python -m posttrain`."""
    try:
        # Nothing is begun while a verb is imported: it may end on the spot.
        hear(end_now)
        _write_what_cannot_be_spelled()
        words = sys.argv[1:]
        if (verb := _find(next((word for word in words if word[:1] != "-"), ""))) is not None:
            verb.load()
            if verb.ahead and not {"-h", "--help"}.intersection(words):
                importlib.import_module(verb.ahead)
        gc.freeze()
        gc.enable()
        hear(interrupt)
        cli.main(standalone_mode=False)
    except UserError as error:
        for told in error.sentences:
            click.echo(f"error: {printable(told)}", err=True)
        sys.exit(2)
    except click.UsageError as error:
        if error.ctx is not None:
            click.echo(error.ctx.get_usage(), err=True)
            click.echo(f"Try '{error.ctx.command_path} --help' for help.\n", err=True)
        click.echo(f"error: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        click.echo(f"error: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        # The machine refuses: a full disk or standard output, a folder that is a file, no right.
        place = f"{error.filename}: " if error.filename else ""
        click.echo(f"error: {place}{error.strerror or error}", err=True)
        sys.exit(2)
    except Interrupted as asked:
        # Not by way of what libraries have laid up for the end: nothing is waited for any more.
        end_now(asked.number)
    except (click.Abort, KeyboardInterrupt):
        # Where a library heard Ctrl-C itself, or a question was answered by no.
        click.echo(SENTENCE, err=True)
        sys.exit(128 + signal.SIGINT)
