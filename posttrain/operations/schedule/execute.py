"""The run of one tick, inside its own process and worktree: the recipe as it is now, to its end."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from posttrain.data.sources.base import Source
from posttrain.operations.schedule.journal import Journal, Tick
from posttrain.operations.schedule.moved import fingerprint, moved
from posttrain.operations.schedule.schedule import CronSchedule
from posttrain.operations.schedule.worktree import record
from posttrain.pipeline.execution.compatibility import refuse_incompatible
from posttrain.pipeline.execution.display import PlainDisplay
from posttrain.pipeline.execution.executor import Executor, StageFailed
from posttrain.pipeline.execution.session import Session, open_session
from posttrain.provenance.git import revision_of
from posttrain.provenance.ledger.processes import this_process
from posttrain.stage.errors import UserError
from posttrain.stage.slots import parts_in
from posttrain.views.tracking import open_tracker

_NUM_CHANGES = 4


class TickFailed(Exception):
    """The run of a tick failed; the journal says how, and Prefect is to see it as well."""


def take(journal: Journal, tick: Tick) -> Tick | None:
    """Become the process of a tick that the worker gave us; None if it is no longer ours."""
    return journal.change(tick, {"process": this_process()}, note="its process is there")


def execute(journal: Journal, schedule: CronSchedule, tick: Tick, project: Path) -> Tick:
    """Run the recipe in `project` to its end and write down how it ended."""
    try:
        with open_session(project / schedule.recipe, schedule.overrides) as session:
            tick = _freeze(journal, schedule, tick, session)
            promote = session.recipe.release.get("promote")
            with session.workspace.locked(f"schedule {schedule.name}"):
                run_id, said = _bring_up_to_date(session, schedule)
    except StageFailed as failure:
        raise TickFailed(_failed(journal, tick, str(failure), again=True)) from None
    except UserError as error:
        raise TickFailed(_failed(journal, tick, str(error), again=False)) from None
    except Exception as error:
        _failed(journal, tick, f"{type(error).__name__}: {error}", again=True)
        raise
    if schedule.release:
        said = f"{said}; {_release(schedule, project, promote)}"
    return _end(journal, tick, {"status": "succeeded", "reason": said, "run_id": run_id})


def _bring_up_to_date(session: Session, schedule: CronSchedule) -> tuple[str | None, str]:
    from posttrain.pipeline.execution.prefect import run_with_prefect

    decisions = session.planner.plan()
    refuse_incompatible(session.planner, decisions)
    if all(decision.action == "cached" for decision in decisions):
        session.settle(decisions)
        return None, f"everything was up to date: {len(decisions)} stages"
    tracker = open_tracker(session.workspace.state)
    lanes = session.recipe.run.lanes()

    def runner(executor: Executor, names: Any) -> None:
        run_with_prefect(executor, names, slots=lanes)

    try:
        run = session.run(
            decisions,
            runner=runner,
            tracker=tracker,
            display=PlainDisplay(),
            command=f"posttrain schedule ({schedule.name})",
        )
    finally:
        if complaint := tracker.close():
            print(f"note: {complaint}", file=sys.stderr)
    made = [record for record in session.records.values() if record.status == "succeeded"]
    return run.id, f"{len(made)} of {len(decisions)} stages ran"


def _freeze(journal: Journal, schedule: CronSchedule, tick: Tick, session: Session) -> Tick:
    """Write down what this run starts from, and what of it is not as it was the last time."""
    watched = [*schedule.watch, *_inputs(session)]
    root = session.workspace.root
    frozen = {
        "commit": revision_of(root).commit,
        "overrides": list(schedule.overrides),
        "params": dict(_flat(session.recipe.resolved(session.dag))),
        "watched": fingerprint(root, watched),
    }
    last = journal.last_success(schedule.name)
    for line in _differences(last.frozen_values() if last else {}, frozen):
        journal.note(tick, line)
    return _kept(journal.change(tick, {"frozen": json.dumps(frozen, sort_keys=True)}))


def _kept(tick: Tick | None) -> Tick:
    if tick is None:
        raise UserError("another process took this tick over; this one ends")
    return tick


def _inputs(session: Session) -> Iterator[str]:
    """The recipe's own inputs from outside: local files, and data sets on the hub."""
    root = session.workspace.root
    for stage in session.dag.stages.values():
        for reference in stage.inputs.values():
            if reference.path is not None:
                yield f"file:{os.path.relpath(reference.path, root)}"
        for part in parts_in(stage.config):
            if isinstance(part, Source) and (item := part.fetched()) is not None:
                yield item


def _flat(value: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, json.dumps(value, default=str)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    if not before:
        return
    if before["commit"] != now["commit"]:
        yield f"the spec changed: commit {before['commit'][:10]} -> {now['commit'][:10]}"
    params = {**before["params"], **now["params"]}
    changes = [
        f"{name} {before['params'].get(name, 'unset')} -> {now['params'].get(name, 'unset')}"
        for name in params
        if before["params"].get(name) != now["params"].get(name)
    ]
    if changes:
        more = f" and {len(changes) - _NUM_CHANGES} more" if len(changes) > _NUM_CHANGES else ""
        yield f"the parameters changed: {', '.join(changes[:_NUM_CHANGES])}{more}"
    yield from moved(before["watched"], now["watched"])


def _failed(journal: Journal, tick: Tick, error: str, *, again: bool) -> str:
    current = journal.tick(tick.num)
    values = {"status": "failed", "reason": error, "settled": False}
    # What was refused stays refused: no attempt is left to make.
    _end(journal, current, values if again else values | {"not_before": float("inf")})
    return error


def _end(journal: Journal, tick: Tick, values: Mapping[str, Any]) -> Tick:
    ended = journal.change(tick, {**values, "ended": time.time()})
    return ended or journal.tick(tick.num)


def _release(schedule: CronSchedule, project: Path, promote: str | None) -> str:
    """Make a release candidate; its gates decide, and only the recipe's own word promotes it."""
    name = str(schedule.release)
    try:
        record(project, f"Outputs of the scheduled run that {name} is released from")
    except UserError as error:
        return f"no release candidate: {error}"
    command = [sys.executable, "-m", "posttrain", "release", "create", name]
    command += ["--recipe", schedule.recipe, *(["--environment", promote] if promote else [])]
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            command, cwd=project, capture_output=True, text=True, check=False, timeout=3600
        )
        if done.returncode == 0:
            moved = f", and promoted to {promote} as the recipe says" if promote else ""
            return f"release candidate {name} made{moved}"
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return f"no release candidate: {said.removeprefix('error: ')}"
    return "no release candidate: its gates took more than an hour"
