"""What Prefect's pages show of a run beside its states: what stages print, and what came out.

Prefect's own loggers are silent here, as they would repeat in the terminal what a run says there.
Lines of a stage's log go to the API as they come, a batch at a time and beside the stage.
"""

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any

from posttrain.pipeline.execution.display import read_progress
from posttrain.pipeline.execution.executor import Executor
from posttrain.pipeline.execution.log_tail import LogTail
from posttrain.provenance.ledger import StageRun
from posttrain.stage.errors import first_line
from posttrain.stage.interrupts import Interrupted

_POLL_SECONDS = 2.0
# A stage may print a line a step: Prefect's database is no place for a hundred thousand of them.
_MOST_LINES, _LAST_LINES = 2000, 50
_MOST_CHARACTERS = 4000
_INFO, _ERROR = 20, 40
_TOKEN = re.compile(r"[^a-z0-9]+")
"""What may not stand in the key of an artifact."""


@contextmanager
def shown_by_prefect(executor: Executor, page: Path | None) -> Iterator["RunShown"]:
    """Open a client of Prefect's API for what its pages show of a run.

    Args:
        executor: Of the run.
        page: See `RunShown`.

    """
    from prefect.client.orchestration import get_client
    from prefect.settings import get_current_settings

    with get_client(sync_client=True) as client:
        logs = get_current_settings().logging.to_api.enabled
        yield RunShown(executor, client, page, logs=logs)


@dataclass
class RunShown:
    """A flow run as people look at it; what Prefect does not take costs the run nothing.

    Args:
        executor: Of the run; it has Prefect's id of the flow run once that has begun.
        client: Prefect's synchronous client.
        page: The report that is written when the run is over; None where there will be none.
        logs: Whether lines of logs are sent at all.

    """

    executor: Executor
    client: Any
    page: Path | None = None
    logs: bool = True
    _tails: dict[str, "_Shown"] = field(default_factory=dict)
    _complained: bool = False

    @contextmanager
    def stage(self, name: str, task_run: str) -> Iterator[None]:
        """Show what a stage prints while the block works for it, and why it fails.

        Args:
            name: Of the stage.
            task_run: Prefect's id of its task run.

        """
        log = self.executor.planner.workspace.run_dir(self.executor.run_id) / f"{name}.log"
        shown = self._tails.setdefault(name, _Shown(name, LogTail(log)))
        over = threading.Event()

        def follow() -> None:
            while not over.wait(_POLL_SECONDS):
                self._say(shown.new(), task_run)
                self._show_progress(shown, task_run)

        follower = threading.Thread(target=follow, name=f"log of {name}", daemon=True)
        follower.start()
        failed: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failed = error
            raise
        finally:
            over.set()
            follower.join()
            ended = self.executor.results.get(name) if failed is None else None
            told = [] if ended is None else [f"{name}: {ended.status} in {ended.seconds:.1f} s"]
            self._say([*shown.new(), *shown.left(), *told], task_run)
            if failed is not None and not isinstance(failed, Interrupted):
                self._say([str(failed)], task_run, level=_ERROR)

    def conclude(self, errors: Mapping[str, BaseException]) -> None:
        """Show what became of each stage, what was measured, and where the rest is to be found.

        Args:
            errors: Of the stages that failed.

        """
        executor = self.executor
        if errors:
            # Only what ended well has a report.
            self.page = None
        records = [executor.results[each] for each in executor.planner.dag.order()
                   if each in executor.results]  # fmt: skip
        self._keep("stages", "table", "Stages of the run", _stage_rows(records, errors))
        if measured := _metric_rows(records):
            self._keep("metrics", "table", "What was measured", measured)
        self._keep("run", "markdown", "Where the rest is", self._told(records))
        if (address := self._tracked()) is not None:
            self._keep("mlflow", "markdown", "The run in MLflow", f"[{address}]({address})")
        if self.page is not None:
            self._keep("report", "markdown", "The report", f"[{self.page}]({self.page.as_uri()})")

    def _told(self, records: Sequence[StageRun]) -> str:
        executor = self.executor
        run = executor.ledger.run(executor.run_id)
        assert run is not None
        changed = " with local changes" if run.git_dirty else ""
        lines = [
            f"# {executor.planner.recipe.name}: run {run.id}",
            f"- by: {run.actor or 'nobody said'}",
            f"- command: `{run.command}`",
            f"- commit: {run.git_commit or 'none'}{changed}",
            f"- logs: `posttrain logs --run {executor.run_id}`, in "
            f"`{executor.planner.workspace.run_dir(executor.run_id)}`",
            "- all of it in a browser: `posttrain ui`",
        ]
        if self.page is not None:
            lines.append(f"- report: `{self.page}`")
        if (address := self._tracked()) is not None:
            lines.append(f"- curves: [MLflow]({address})")
        made = [out for each in records if each.status != "failed" for out in each.outputs]
        if made:
            lines += ["", "| output | what it was made from |", "|---|---|"]
            lines += [f"| {out.path} | `posttrain lineage up {out.digest[:12]}` |" for out in made]
        return "\n".join(lines)

    def _tracked(self) -> str | None:
        """The page of the run in an MLflow server, where there is one that others reach."""
        server = os.environ.get("MLFLOW_TRACKING_URI", "")
        found = self.executor.tracker.external_id(self.executor.tracked_run)
        return f"{server.rstrip('/')}/#/runs/{found}" if found and "://" in server[:8] else None

    def _show_progress(self, shown: "_Shown", task_run: str) -> None:
        folder = shown.tail.path.parent
        now = read_progress(folder).get(shown.stage, {})
        if not now.get("total") or now["done"] == shown.done:
            return
        shown.done = now["done"]
        share = {"data": 100.0 * now["done"] / now["total"],
                 "description": f"{now['unit']} {now['done']} of {now['total']}"}  # fmt: skip
        if shown.artifact is None:
            made = self._ask("POST", "/artifacts/", {
                "key": self._key(f"{shown.stage}-progress"), "type": "progress",
                "task_run_id": task_run, "flow_run_id": self.executor.prefect_run_id, **share,
            })  # fmt: skip
            shown.artifact = None if made is None else str(made["id"])
        else:
            self._ask("PATCH", f"/artifacts/{shown.artifact}", share)

    def _key(self, what: str) -> str:
        return _TOKEN.sub("-", f"{self.executor.planner.recipe.name}-{what}".lower()).strip("-")

    def _keep(self, what: str, kind: str, about: str, data: object) -> None:
        self._ask("POST", "/artifacts/", {
            "key": self._key(what), "type": kind, "description": about,
            "data": data if isinstance(data, str) else json.dumps(data),
            "flow_run_id": self.executor.prefect_run_id,
        })  # fmt: skip

    def _say(self, lines: Sequence[str], task_run: str, level: int = _INFO) -> None:
        now = datetime.now(UTC)
        logs = [
            {
                "name": "posttrain", "level": level, "message": line[:_MOST_CHARACTERS],
                # Its pages go by time: lines of a batch stay in their order.
                "timestamp": (now + timedelta(microseconds=number)).isoformat(),
                "flow_run_id": self.executor.prefect_run_id, "task_run_id": task_run,
            }
            for number, line in enumerate(lines)
            if line
        ]  # fmt: skip
        if logs and self.logs:
            self._ask("POST", "/logs/", logs)

    def _ask(self, verb: str, place: str, body: object) -> Any:
        """Ask the API; what goes wrong is said once."""
        import httpx
        from prefect.exceptions import PrefectException

        try:
            answer = self.client.request(verb, place, json=body)
            return answer.json() if answer.content else None
        except (httpx.HTTPError, PrefectException, OSError, ValueError) as error:
            if not self._complained:
                self._complained = True
                said = f"note: Prefect shows not all of this run: {first_line(error)}"
                print(said, file=sys.stderr)
            return None


@dataclass
class _Shown:
    """What of a stage's log was shown, over all of its attempts."""

    stage: str
    tail: LogTail
    count: int = 0
    kept: list[str] = field(default_factory=list)
    """The last lines that were not."""
    skipped: int = 0
    done: int | None = None
    artifact: str | None = None

    def new(self) -> list[str]:
        """Lines that came since, as far as there is room."""
        found = [*self.tail.lines()]
        room = max(0, _MOST_LINES - self.count)
        self.count += len(found)
        self.skipped += len(found[room:])
        self.kept = [*self.kept, *found[room:]][-_LAST_LINES:]
        return found[:room]

    def left(self) -> list[str]:
        """The end of a log that was too long, and how much lies before it."""
        if not self.kept:
            return []
        between = self.skipped - len(self.kept)
        lines = [f"... {between} lines more in {self.tail.path}", *self.kept]
        self.kept, self.skipped = [], 0
        return lines


def _stage_rows(
    records: Sequence[StageRun], errors: Mapping[str, BaseException]
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {"stage": each.stage, "status": each.status,
         "seconds": round(each.seconds, 1) if each.status == "succeeded" else None,
         "began": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(each.started)),
         "key": each.key[:12]}
        for each in records if each.stage not in errors
    ]  # fmt: skip
    failed: list[dict[str, object]] = [{"stage": name, "status": "failed", "error": str(why)}
              for name, why in errors.items()]  # fmt: skip
    return [*rows, *failed]


def _metric_rows(records: Sequence[StageRun]) -> list[dict[str, object]]:
    return [
        # What is not finite is no JSON.
        {"stage": each.stage, "metric": name, "value": value if isfinite(value) else str(value)}
        for each in records
        for name, value in sorted(each.metrics.items())
    ]
