"""Prefect, MLflow, the worker and PostgreSQL: what `posttrain up` or the environment names."""

import contextlib
import email.utils
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from posttrain.operations.maintenance.checks.clock import skew
from posttrain.operations.maintenance.checks.finding import MAKE_ROOM, CheckScope, Finding, is_full
from posttrain.operations.services.plan import FOLDER, addresses
from posttrain.operations.services.process import alive, elsewhere
from posttrain.operations.services.supervisor import SUPERVISOR
from posttrain.stage.errors import first_line, masked
from posttrain.stage.formatting import bytesize, duration

_SECONDS = 5.0
_STALE_SECONDS = 180.0
_EMBEDDED = {
    "mlflow": ("mlflow.db", "posttrain mlflow rebuild makes it anew from the ledger"),
    "prefect": ("prefect/prefect.db", "remove it: it is made anew, without its history"),
    "schedules": ("schedules.db", "restore a copy (docs/operations.md)"),
    "requests": ("requests.db", "remove it: answers are asked for again"),
}
_POSTGRES = (
    "POSTTRAIN_LEDGER",
    "POSTTRAIN_SCHEDULES",
    "POSTTRAIN_PREFECT_DATABASE",
    "MLFLOW_BACKEND_STORE_URI",
)
_HEALTH = {"PREFECT_API_URL": "prefect", "MLFLOW_TRACKING_URI": "mlflow"}


def databases(place: CheckScope) -> Iterator[Finding]:
    """The SQLite files of this project are whole."""
    for name, (file, remedy) in _EMBEDDED.items():
        path = place.state / file
        if not path.is_file():
            continue
        said = _quick_check(path)
        if said == "ok":
            yield Finding(name, "ok", f"embedded database, {bytesize(path.stat().st_size)}")
        elif is_full(path.parent):
            yield Finding(name, "broken", f"{path} cannot be read: {said}", MAKE_ROOM)
        else:
            yield Finding(name, "broken", f"{path} is damaged: {said}", remedy)


def servers(place: CheckScope) -> Iterator[Finding]:
    """The servers that `posttrain up` started, and those that the environment names, answer."""
    folder = place.project / FOLDER
    asked: set[str] = set()
    if (pid := alive(folder, SUPERVISOR)) is not None:
        for variable, url in addresses(place.project).items():
            asked.add(url)
            name = _HEALTH[variable]
            again = _again(folder, name)
            if (server := alive(folder, name)) is None:
                yield Finding(name, "broken", f"it is gone, and process {pid} watches", again)
                continue
            for finding in _answers(name, url, again):
                said = finding.says if finding.state == "ok" else f"hung? {finding.says}"
                yield replace(finding, says=f"{said} (process {server})")
        yield _worker(folder, pid, _again(folder, "worker"))
    elif (where := elsewhere(folder, SUPERVISOR)) is not None:
        says = f"{folder / SUPERVISOR}.pid is of another machine, {where}"
        yield Finding("services", "warning", says, "posttrain down there; posttrain up takes over")
    elif (folder / f"{SUPERVISOR}.pid").is_file():
        says = "what posttrain up started ended without posttrain down: a kill, or a reboot"
        yield Finding("services", "warning", says, "posttrain up --detach, or posttrain down")
    for variable, name in _HEALTH.items():
        url = os.environ.get(variable, "")
        if url.startswith("http") and url not in asked:
            remedy = f"start it, or correct or unset {variable}; posttrain up starts one here"
            yield from _answers(name, url, remedy)
    for variable in _POSTGRES:
        url = os.environ.get(variable, "")
        if url.startswith("postgres"):
            yield _connects(variable, url)


def _again(folder: Path, name: str) -> str:
    return f"its log says why: {folder / name}.log; posttrain down && posttrain up --detach"


def _answers(name: str, url: str, remedy: str) -> Iterator[Finding]:
    """Return whether a server says that it is well, and what time it has."""
    import httpx2

    # The user whom the address names asks, and no sentence shows the password.
    shown = masked(url)
    try:
        # A proxy of the environment has no business between this machine and its own servers.
        answer = httpx2.get(f"{url.rstrip('/')}/health", timeout=_SECONDS, trust_env=False)
        answer.raise_for_status()
        yield Finding(name, "ok", f"{shown} answers")
        theirs = email.utils.parsedate_to_datetime(answer.headers["Date"]).timestamp()
        yield from skew(f"the server at {shown}", theirs)
    except httpx2.HTTPStatusError as error:
        says = f"{shown} answers with error {error.response.status_code}"
        yield Finding(name, "broken", says, remedy)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        yield Finding(name, "broken", masked(f"{shown} does not answer: {error}"), remedy)
    except (KeyError, ValueError):
        return


def _worker(folder: Path, pid: int, remedy: str) -> Finding:
    """The worker touches its file; one that stopped doing so runs nothing any more."""
    beat = folder / "worker.beat"
    quiet = time.time() - beat.stat().st_mtime if beat.is_file() else None
    if (worker := alive(folder, "worker")) is None:
        return Finding("worker", "broken", f"it is gone, and process {pid} watches", remedy)
    if quiet is None or quiet > _STALE_SECONDS:
        since = f"for {duration(quiet)}" if quiet is not None else "yet"
        says = f"hung? it has given no sign of life {since} (process {worker})"
        return Finding("worker", "broken", says, remedy)
    return Finding("worker", "ok", "runs what is due of the schedules")


def _connects(variable: str, url: str) -> Finding:
    from sqlalchemy import create_engine, text
    from sqlalchemy.exc import SQLAlchemyError

    from posttrain.provenance.ledger.migrate import driver_url

    remedy = f"start the database, or correct {variable}"
    try:
        engine = create_engine(driver_url(url), connect_args={"connect_timeout": int(_SECONDS)})
        with engine.connect() as connection:
            version = connection.execute(text("SHOW server_version")).scalar()
        engine.dispose()
    except (SQLAlchemyError, ImportError) as error:
        said = masked(first_line(error))
        return Finding("postgresql", "broken", f"{variable} does not answer: {said}", remedy)
    return Finding("postgresql", "ok", f"{variable} answers, version {version}")


def _quick_check(path: Path) -> str:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as c:
            return str(c.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        return str(error)
