"""Everything that is asked of a Prefect server for schedules.

Calls go through Prefect's own synchronous client and may fail while the server is away: callers
try again, since every call here can be repeated without harm.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from posttrain.operations.schedule.automations import automate, remove_automations
from posttrain.operations.schedule.notes import Tick
from posttrain.operations.schedule.recipes import Schedule
from posttrain.operations.schedule.times import Clock
from posttrain.stage.hashing import sha256_of_parts

FLOW_NAME = POOL = "posttrain"
ENTRYPOINT = "posttrain.operations.schedule.flow.scheduled"
BEAT_SECONDS = 30
_SILENT_SECONDS = 90
_SILENT = "posttrain: a run that sends no heartbeat has crashed"
# What Prefect's server needs to be told for the promises to hold; docs/decisions/0019 says why.
SETTINGS = {
    # Kept in memory, the place that a run holds is lost with the server, and its schedule waits.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
        "prefect.server.concurrency.lease_storage.filesystem"
    ),
    "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "5",
}
# How the end of a tick looks in Prefect: type of the state, and its name.
_OUTCOMES = {
    "succeeded": ("COMPLETED", "Completed"),
    "unchanged": ("COMPLETED", "Unchanged"),
    "skipped": ("CANCELLED", "Skipped"),
    "cancelled": ("CANCELLED", "Cancelled"),
    "failed": ("FAILED", "Failed"),
    "crashed": ("CRASHED", "Crashed"),
}


class Server:
    """A Prefect server with one work pool of ours, which projects may share."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def require_pool(self) -> None:
        """Make the work pool, and the automation that finds silent runs, where they are missing."""
        from prefect.client.schemas.actions import WorkPoolCreate
        from prefect.exceptions import ObjectNotFound

        try:
            self.client.read_work_pool(POOL)
        except ObjectNotFound:
            pool = WorkPoolCreate(name=POOL, type="process", base_job_template={})
            self.client.create_work_pool(pool)
        if not self.client.request("POST", "/automations/filter", json=_named(_SILENT)).json():
            self.client.request("POST", "/automations/", json=_silent_is_crashed())

    def deploy(self, schedule: Schedule, owner: Mapping[str, str], *, paused: bool) -> None:
        """Make or change the deployment of a schedule, with its clock and its limit of one."""
        from prefect.client.schemas.actions import DeploymentScheduleCreate
        from prefect.client.schemas.objects import ConcurrencyOptions
        from prefect.client.schemas.schedules import CronSchedule

        cron = CronSchedule(cron=schedule.clock.cron, timezone=schedule.clock.timezone)
        strategy = {"enqueue": "ENQUEUE", "cancel": "CANCEL_NEW"}[schedule.config.overlap]
        deployment = self.client.create_deployment(
            flow_id=self.client.create_flow_from_name(FLOW_NAME),
            name=schedule.name,
            version=version_of(schedule),
            entrypoint=ENTRYPOINT,
            parameters={"schedule": schedule.name},
            schedules=[DeploymentScheduleCreate(schedule=cron, active=True, slug="cron")],
            paused=paused,
            concurrency_limit=1,
            concurrency_options=ConcurrencyOptions(collision_strategy=strategy),
            description=f"`{schedule.config.cron}` ({schedule.config.timezone}), declared in "
            f"{schedule.recipe}/recipe.yaml.\n\nMissed runs: {schedule.config.missed}.\n\n"
            f"Story of every run: `posttrain schedule history {schedule.name}`.",
            tags=[f"recipe:{schedule.title}", f"schedule:{schedule.name}"],
            work_pool_name=POOL,
            job_variables=dict(owner),
            enforce_parameter_schema=False,
        )
        automate(self.client, schedule, str(deployment))

    def pause(self, deployment: Any, *, paused: bool) -> None:
        """Let nothing be laid out, or let it again."""
        change = self.client.pause_deployment if paused else self.client.resume_deployment
        change(deployment.id)

    def withdraw(self, deployment: Any) -> None:
        """Take a schedule's deployment away, and the runs that are laid out with it."""
        remove_automations(self.client, deployment.name)
        self.client.delete_deployment(deployment.id)

    def deployments(self) -> dict[str, Any]:
        """The deployments of our flow by name."""
        from prefect.client.schemas.filters import FlowFilter, FlowFilterName

        named = FlowFilter(name=FlowFilterName(any_=[FLOW_NAME]))
        return {each.name: each for each in self.client.read_deployments(flow_filter=named)}

    def runs(self, ids: Sequence[str]) -> dict[str, Any]:
        """These flow runs by id, and all of our flow that a process has."""
        found = {}
        wanted: list[dict[str, Any]] = [
            {"id": {"any_": list(ids[i : i + 100])}} for i in range(0, len(ids), 100)
        ]
        active = {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}
        for chosen in (*wanted, {"state": active, "deployment_id": {"is_null_": False}}):
            for each in self._filtered(chosen):
                found[str(each.id)] = each
        return found

    def runs_between(self, deployment: Any, after: float, until: float) -> dict[float, Any]:
        """The deployment's flow runs that were to start in a span, by their time; the last 200."""
        span = {"after_": _moment(after).isoformat(), "before_": _moment(until).isoformat()}
        own = {"any_": [str(deployment.id)]}
        found = self._filtered({"deployment_id": own, "expected_start_time": span})
        return {each.expected_start_time.timestamp(): each for each in found}

    def lay_out(self, deployment: Any, schedule: Schedule, tick: Tick) -> str:
        """Make the flow run of a tick that has none; asked twice, still one. Returns its id."""
        from prefect.states import Scheduled

        when = datetime.fromtimestamp(tick.due, ZoneInfo(schedule.config.timezone))
        made = self.client.create_flow_run_from_deployment(
            deployment.id,
            state=Scheduled(scheduled_time=when, message=tick.reason),
            idempotency_key=f"posttrain {tick.schedule}@{tick.due:.6f} in {deployment.id}"
            f" after {tick.data.get('flow_run_id')}",
            name=f"{tick.schedule} {when:%Y-%m-%d %H:%M}",
            tags=deployment.tags,
        )
        return str(made.id)

    def show(self, flow_run_id: str, tick: Tick) -> None:
        """Let Prefect say about a flow run what the notes say about its tick."""
        if tick.over:
            self._put(flow_run_id, *_OUTCOMES[tick.status], tick.reason)
        elif tick.status == "waiting":
            at = tick.data.get("not_before") or time.time()
            self._put(flow_run_id, "SCHEDULED", "AwaitingRetry", tick.reason, at)

    def skip(self, flow_run_id: str, reason: str) -> None:
        """End a flow run that is not to run."""
        self._put(flow_run_id, "CANCELLED", "Skipped", reason)

    def _put(
        self, flow_run_id: str, kind: str, name: str, reason: str, at: float | None = None
    ) -> None:
        from prefect.client.schemas.objects import State, StateDetails, StateType
        from prefect.exceptions import ObjectNotFound

        details = StateDetails(scheduled_time=None if at is None else _moment(at))
        state = State(type=StateType(kind), name=name, message=reason, state_details=details)
        try:
            self.client.set_flow_run_state(flow_run_id, state, force=True)
        except ObjectNotFound:
            return

    def _filtered(self, chosen: dict[str, Any]) -> list[Any]:
        from prefect.client.schemas.objects import FlowRun

        body = {"flow_runs": chosen, "sort": "EXPECTED_START_TIME_DESC"}
        answer = self.client.request("POST", "/flow_runs/filter", json=body)
        return [FlowRun.model_validate(each) for each in answer.json()]


def clocks(deployment: Any) -> list[Clock]:
    """What Prefect lays out by now, also where somebody changed it in its pages."""
    active = [each.schedule for each in deployment.schedules if each.active]
    return [Clock(s.cron, s.timezone or "UTC") for s in active if hasattr(s, "cron")]


def is_paused(deployment: Any) -> bool:
    """Return whether nothing is laid out."""
    return deployment.paused or not any(each.active for each in deployment.schedules)


def version_of(schedule: Schedule) -> str:
    """Name of a declaration; the deployment carries it."""
    return sha256_of_parts([schedule.as_text().encode()])[:12]


@contextmanager
def connect() -> Iterator[Server]:
    """A server by PREFECT_API_URL, through Prefect's own client."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        yield Server(client)


def away() -> tuple[type[Exception], ...]:
    """What a server or a database that does not answer, or not well, is known by."""
    import httpx
    from prefect.exceptions import PrefectException
    from sqlalchemy.exc import SQLAlchemyError

    # What a server of another version says may not be what the client reads.
    unreadable = (ValueError, TypeError, LookupError)
    return (httpx.HTTPError, PrefectException, SQLAlchemyError, OSError, *unreadable)


def is_away(error: Exception) -> bool:
    """Return whether an error is of the server or of the notes, and not of one schedule."""
    import httpx
    from sqlalchemy.exc import SQLAlchemyError

    if isinstance(error, httpx.HTTPStatusError):
        return bool(error.response.status_code >= 500)
    return isinstance(error, httpx.TransportError | SQLAlchemyError)


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _named(name: str) -> dict[str, Any]:
    return {"automations": {"name": {"any_": [name]}}}


def _silent_is_crashed() -> dict[str, Any]:
    """Prefect's own recipe: a heartbeat is to be followed by another, or by an end."""
    ends = ("Completed", "Failed", "Cancelled", "Crashed", "AwaitingRetry", "heartbeat")
    return {
        "name": _SILENT,
        "trigger": {
            "type": "event",
            "posture": "Proactive",
            "match": {"prefect.resource.id": "prefect.flow-run.*"},
            "after": ["prefect.flow-run.heartbeat"],
            "expect": [f"prefect.flow-run.{name}" for name in ends],
            "for_each": ["prefect.resource.id"],
            "threshold": 1,
            "within": _SILENT_SECONDS,
        },
        "actions": [
            {
                "type": "change-flow-run-state",
                "state": "CRASHED",
                "message": f"sent no heartbeat for {_SILENT_SECONDS} s",
            }
        ],
    }
