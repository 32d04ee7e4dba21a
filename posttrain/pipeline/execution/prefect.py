"""Run a DAG as a Prefect flow: one task per stage, with retries, timeouts and tags.

The only module of a run that imports Prefect; `posttrain run --local` never reaches it. Without a
server of the user's (PREFECT_API_URL), one is started for the duration of the run, with its
database under `.posttrain/prefect`; stages begin while it comes up.
"""

import atexit
import gc
import importlib
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.pipeline.execution.executor import Executor
from posttrain.pipeline.execution.failures import ServerFailed, StageFailed, raise_all
from posttrain.pipeline.execution.head_start import HeadStart
from posttrain.pipeline.execution.prefect_profile import (
    PREFECT_PROFILES,
    PrefectProfile,
    active_profile,
    say_where,
)
from posttrain.pipeline.execution.prefect_server import (
    AS_TEMPORARY,
    TemporaryServer,
    await_answer,
    kept_process,
)
from posttrain.pipeline.execution.prefect_shown import RunShown, shown_by_prefect
from posttrain.stage.errors import UserError, first_line
from posttrain.views.tracking.blank import keep_blank, lay_blank

if TYPE_CHECKING:
    from prefect.client.schemas.objects import TaskRun
    from prefect.futures import PrefectFuture
    from prefect.settings import Settings
    from prefect.states import State

_RETRY_SECONDS = 2
# The last two are what a flow imports when it begins.
_MODULES = (
    "prefect.flow_engine",
    "prefect.task_engine",
    "prefect.task_runners",
    "prefect.utilities.visualization",
    "anyio._backends._asyncio",
)
# Files of this folder from which Prefect reads settings, and what they then contain.
_SETTINGS_FILES = {"prefect.toml": "", "pyproject.toml": "tool.prefect", ".env": "PREFECT_"}
# Prefect's database and its journal; where they do not fit, its server is started for ever.
_SERVER_BYTES = 16 << 20


@dataclass
class _Ends:
    """How the stages ended, whatever became of their task runs."""

    errors: dict[str, BaseException] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    def conclude(self, names: Sequence[str]) -> None:
        """Raise what went wrong, and what is no failure of a stage first."""
        raise_all(self.errors[name] for name in names if name in self.errors)
        if missing := [name for name in names if name not in self.done]:
            # Its API did not answer, and it gave the task up: that is no success of the run.
            raise RuntimeError(f"Prefect did not run {', '.join(missing)}")


def run_with_prefect(
    executor: Executor, names: Sequence[str], *, slots: int, page: Path | None = None
) -> None:
    """Bring `names` up to date through a Prefect flow run, which the executor remembers.

    Args:
        executor: Brings a stage up to date.
        names: Stages to run, in an order in which they can.
        slots: Stages at once.
        page: The report that will be written afterwards, to which Prefect's pages refer.

    """
    profile = configure(executor.planner.workspace.state)
    with HeadStart(executor, names, slots=slots) as ahead:
        server = _begin_server()
        if server is None:
            # Whether the user's server is there is known only when Prefect is.
            with executor.processes.interruption.abortable():
                _import_prefect()
                _start_server()
        else:
            ahead.begin()
            os.environ["PREFECT_API_URL"] = server.url
            _import_prefect()
            del os.environ["PREFECT_API_URL"]
        ends = _Ends()
        try:
            with _without_heartbeat(), shown_by_prefect(executor, page) as shown:
                if server is not None:
                    server.wait()
                ahead.hand_over()
                _run_flow(executor, names, ahead, ends, shown, slots=slots, profile=profile)
        finally:
            if server is not None and executor.prefect_run_id is not None:
                # It ends while the rest of the run is written.
                server.end(executor.prefect_run_id, ended=len(ends.done | ends.errors.keys()))


def _import_prefect() -> None:
    """Import what a flow needs; it stays: to look for garbage in it takes a fifth of the time."""
    gc.disable()
    try:
        for name in _MODULES:
            importlib.import_module(name)
    finally:
        gc.enable()
    # The interpreter looks for garbage once more when it ends: a quarter of a second.
    atexit.register(gc.freeze)


@contextmanager
def _without_heartbeat() -> Iterator[None]:
    """Settings without the thread that is joined at the end of a flow, which costs a whole second.

    To make them takes 0.15 s, which pass while the server comes up.
    """
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


def _run_flow(
    executor: Executor,
    names: Sequence[str],
    ahead: HeadStart,
    ends: _Ends,
    shown: RunShown,
    *,
    slots: int,
    profile: PrefectProfile | None,
) -> None:
    from prefect import flow, task
    from prefect.cache_policies import NO_CACHE
    from prefect.futures import wait
    from prefect.runtime import flow_run
    from prefect.task_runners import ThreadPoolTaskRunner

    settings = executor.planner.recipe.run
    dag = executor.planner.dag

    @task(  # type: ignore[untyped-decorator]
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=settings.retries,
        retry_delay_seconds=_RETRY_SECONDS,
        retry_condition_fn=_worth_retrying,
        log_prints=False,
    )
    def stage(name: str) -> Mapping[str, str]:
        from prefect.runtime import task_run

        try:
            with shown.stage(name, str(task_run.id)):
                record = ahead.bring_up_to_date(name, attempt=task_run.run_count or 1)
        except BaseException as error:
            ends.errors[name] = error
            raise
        ends.errors.pop(name, None)
        ends.done.add(name)
        return {"status": record.status, "key": record.key}

    @flow(  # type: ignore[untyped-decorator]
        name=executor.planner.recipe.name,
        flow_run_name=executor.run_id,
        task_runner=ThreadPoolTaskRunner(max_workers=slots),
        persist_result=False,
        validate_parameters=False,
    )
    def pipeline() -> None:
        executor.prefect_run_id = str(flow_run.id)
        futures: dict[str, PrefectFuture[Any]] = {}
        for name in names:
            named = stage.with_options(
                name=name,
                task_run_name=name,
                tags=[
                    f"task:{dag.stages[name].task.package}",
                    f"recipe:{executor.planner.recipe.name}",
                ],
                # The stage's own limit stops it first; this one catches a supervisor that hangs.
                timeout_seconds=settings.timeout_minutes * 60 + 120,
            )
            futures[name] = named.submit(
                name, wait_for=[futures[up] for up in dag.upstream(name) if up in futures]
            )
        wait(list(futures.values()))
        shown.conclude(ends.errors)
        ends.conclude(names)

    try:
        pipeline()
    except RuntimeError as error:
        if executor.prefect_run_id is not None:
            raise
        raise _not_started(error, profile) from None


def _not_started(error: RuntimeError, profile: PrefectProfile | None) -> UserError:
    """Say which server does not answer, and where its address stands."""
    theirs = "unset PREFECT_API_URL"
    if profile is not None and profile.url is not None:
        theirs = f"change the {profile} (prefect config unset PREFECT_API_URL)"
    return UserError(
        f"Prefect did not start: {first_line(error).rstrip('/.')}; "
        f"run with --local, or {theirs} if it names a server that is gone"
    )


def _begin_server() -> TemporaryServer | None:
    """Start the server before Prefect is imported, where nobody says another thing of it."""
    home = Path(os.environ["PREFECT_HOME"])
    named = {name for name in os.environ if name.startswith("PREFECT_")}
    read = any(
        text in Path(name).read_text(encoding="utf-8", errors="replace")
        for name, text in _SETTINGS_FILES.items()
        if Path(name).is_file()
    )
    if (
        read
        or (home / "profiles.toml").exists()
        or "prefect" in sys.modules
        or named - {*_DEFAULTS, "PREFECT_HOME"}
    ):
        return None
    return TemporaryServer(home, seconds=float(os.environ[_STARTUP]))


def _start_server() -> None:
    """Start the server that Prefect would start for itself, so that it ends whatever happens.

    Prefect's own shares our terminal, where Ctrl-C reaches it before the flow has reported; waits
    two minutes for one that has ended; and outlives a command that is killed.
    """
    from prefect.settings import get_current_settings

    settings = get_current_settings()
    if settings.api.url is not None:
        return
    from prefect.server.api.server import SubprocessASGIServer

    database = _database(settings)
    new = database is not None and not database.is_file() and not lay_blank("prefect", database)
    server = SubprocessASGIServer()
    server.port = server.find_available_port()
    environment = {
        **os.environ,
        **settings.to_environment_variables(exclude_unset=True),
        **AS_TEMPORARY,
    }
    app = ("-m", "uvicorn", "--factory", "prefect.server.api.server:create_app")
    where = ("--host", "127.0.0.1", "--port", str(server.port))
    quiet = ("--log-level", "error", "--lifespan", "on")
    process = kept_process([sys.executable, *app, *where, *quiet], environment)
    server.server_process = process
    server.running = True
    atexit.register(server.stop)
    try:
        await_answer(
            f"{server.api_url}/health",
            process,
            settings.server.ephemeral.startup_timeout_seconds,
        )
    except ServerFailed:
        server.stop()
        raise
    if new:
        assert database is not None
        keep_blank("prefect", database, emptied=["configuration"])


def _database(settings: "Settings") -> Path | None:
    """The SQLite database that the server makes itself; None where the user named another one."""
    url = settings.server.database.connection_url
    place = settings.home / "prefect.db"
    settings.home.mkdir(parents=True, exist_ok=True)
    own = url is None or url.get_secret_value() == f"sqlite+aiosqlite:///{place}"
    return place if own else None


def _worth_retrying(_task: Any, _run: "TaskRun", state: "State[Any]") -> bool:
    error = state.result(raise_on_failure=False)
    return isinstance(error, StageFailed) and error.retryable


_STARTUP = "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"
_DEFAULTS = {
    # A failed stage is said once, by us: Prefect would add a traceback and a line for each stage
    # that waits for it.
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    # On a busy machine its end interrupts the recording of what was said already, with a traceback.
    "PREFECT_LOGGING_SERVER_LEVEL": "CRITICAL",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # Stages work meanwhile: on a machine that is busy with other things it may well take minutes.
    _STARTUP: "300",
    "DO_NOT_TRACK": "1",
}


def configure(state: Path) -> PrefectProfile | None:
    """Settings that Prefect reads when it is imported; what the user set stays.

    Args:
        state: Of the project; Prefect's own is kept in it.

    Returns:
        The user's profile, where it says something.

    """
    profile = active_profile(state / "prefect")
    if profile is not None:
        os.environ[PREFECT_PROFILES] = str(profile.path)
        say_where(profile)
    theirs: Collection[str] = () if profile is None else profile.settings.keys()
    for name, value in _DEFAULTS.items():
        if name not in theirs:
            os.environ.setdefault(name, value)
    os.environ.setdefault("PREFECT_HOME", str(state / "prefect"))
    elsewhere = "PREFECT_API_URL" in {*os.environ, *theirs}
    if not elsewhere and shutil.disk_usage(state).free < _SERVER_BYTES:
        raise UserError(
            f"no space left on the disk of {state}: Prefect's own database needs "
            f"{_SERVER_BYTES >> 20} MB; free some, or run with --local"
        )
    return profile
