"""The run of one tick, inside its own process and worktree: the recipe as it is now, to its end."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from posttrain.data.sources.base import Source
from posttrain.operations.schedule.moved import DoesNotAnswer, fingerprint, moved
from posttrain.operations.schedule.notes import ScheduleNotes, Tick, open_notes
from posttrain.operations.schedule.outcome import here
from posttrain.operations.schedule.recipes import Schedule
from posttrain.operations.schedule.worktree import head, record
from posttrain.pipeline.execution.compatibility import refuse_incompatible
from posttrain.pipeline.execution.display import PlainDisplay
from posttrain.pipeline.execution.executor import StageFailed
from posttrain.pipeline.execution.session import Session, open_session
from posttrain.provenance.key import flattened
from posttrain.stage.errors import UserError, sentence
from posttrain.stage.slots import parts_in
from posttrain.views.tracking import open_tracker

_NUM_CHANGES = 4


def claim(given: Mapping[str, Any]) -> bool:
    """Note that an attempt begins; False where it is not this process that is to make it."""
    with open_notes(Path(given["root"])) as notes:
        tick = notes.tick(Schedule.from_text(given["schedule"]).name, given["due"])
        if tick is None or tick.status != "waiting":
            return False
        begins = replace(tick, attempt=tick.attempt + 1)
        told = {"log": given["log"], "flow_run_id": given["flow_run_id"], **here()}
        return notes.about(begins, "running", "", claim="begins", **told)


def execute(given: Mapping[str, Any], project: Path) -> str:
    """Run the recipe in `project` to its end and note how it ended, if that was not noted yet."""
    schedule = Schedule.from_text(given["schedule"])
    with open_notes(Path(given["root"])) as notes:
        tick = notes.tick(schedule.name, given["due"])
        if tick is None:
            raise UserError("the notes about this run are gone; it ends")
        try:
            recipe = project / schedule.recipe
            with open_session(recipe, schedule.config.overrides) as session:
                _freeze(notes, tick, schedule, session)
                promote = session.recipe.release.get("promote")
                with session.workspace.locked(f"schedule {schedule.name}"):
                    run_id, said = _bring_up_to_date(session, schedule)
        except Exception as error:
            said = str(error) if isinstance(error, StageFailed) else sentence(error)
            refused = isinstance(error, UserError) and not isinstance(error, DoesNotAnswer)
            notes.about(tick, "failed", said, claim="!", refused=refused)
            raise
        if schedule.config.release:
            said = f"{said}; {_release(schedule, project, promote)}"
        notes.about(tick, "succeeded", said, claim="!", run_id=run_id)
    return said


def _bring_up_to_date(session: Session, schedule: Schedule) -> tuple[str | None, str]:
    from posttrain.pipeline.execution.prefect import run_with_prefect

    decisions = session.planner.plan()
    refuse_incompatible(session.planner, decisions)
    if all(decision.action == "cached" for decision in decisions):
        session.settle(decisions)
        return None, f"everything was up to date: {len(decisions)} stages"
    tracker = open_tracker(session.workspace.state)
    try:
        run = session.run(
            decisions,
            runner=partial(run_with_prefect, slots=session.recipe.run.lanes()),
            tracker=tracker,
            display=PlainDisplay(),
            command=f"posttrain schedule ({schedule.name})",
        )
    finally:
        if complaint := tracker.close():
            print(f"note: {complaint}", file=sys.stderr)
    made = [record for record in session.records.values() if record.status == "succeeded"]
    return run.id, f"{len(made)} of {len(decisions)} stages ran"


def _freeze(notes: ScheduleNotes, tick: Tick, schedule: Schedule, session: Session) -> None:
    """Note what this run starts from, and what of it is not as it was the last time."""
    config = schedule.config
    root = session.workspace.root
    frozen = {
        "commit": head(root),
        "overrides": list(config.overrides),
        "params": flattened(session.recipe.resolved(session.dag)),
        "watched": fingerprint(root, [*config.watch, *_inputs(session)]),
    }
    last = notes.last_success(schedule.name)
    for line in _differences(last.data.get("frozen", {}) if last else {}, frozen):
        notes.about(tick, "note", line)
    notes.about(tick, "note", f"commit {str(frozen['commit'])[:10]}", frozen=frozen)


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


def _release(schedule: Schedule, project: Path, promote: str | None) -> str:
    """Make a release candidate; its gates decide, and only the recipe's own word promotes it."""
    name = str(schedule.config.release)
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
