"""Everything that is asked of a Prefect server for schedules; the one module here that imports it.

Calls go through Prefect's own synchronous client and may fail while the server is away: callers
try again, since every call here can be repeated without harm.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from posttrain.operations.schedule.deployments import ENTRYPOINT, FLOW_NAME, description, tags
from posttrain.operations.schedule.journal import Tick
from posttrain.operations.schedule.schedule import CronSchedule

FAILED_EVENT = "posttrain.schedule.failed"
_SCHEDULE = "posttrain.schedule"
_ASK_SECONDS = 60.0
# How the end of a tick looks in Prefect: type of the state, and its name.
OUTCOMES = {
    "succeeded": ("COMPLETED", "Completed"),
    "unchanged": ("COMPLETED", "Unchanged"),
    "skipped": ("CANCELLED", "Skipped"),
    "cancelled": ("CANCELLED", "Cancelled"),
    "failed": ("FAILED", "Failed"),
    "crashed": ("CRASHED", "Crashed"),
}
_FINAL = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")


@dataclass(frozen=True)
class FlowRun:
    """A flow run of a schedule's deployment, in its state `since`. Times in UTC seconds."""

    id: str
    schedule: str
    due: float
    state: str
    since: float = 0.0

    @property
    def final(self) -> bool:
        """Return whether Prefect takes it for over."""
        return self.state in _FINAL


class Server:
    """A Prefect server with one work pool of ours."""

    def __init__(self, client: Any, pool: str) -> None:
        self.client = client
        self._pool = pool
        self._laid_out: dict[tuple[str, float], float] = {}

    def require_pool(self) -> None:
        """Make the work pool where it is not there."""
        from prefect.client.schemas.actions import WorkPoolCreate
        from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

        try:
            self.client.read_work_pool(self._pool)
        except ObjectNotFound:
            pool = WorkPoolCreate(name=self._pool, type="process", base_job_template={})
            with suppress(ObjectAlreadyExists):
                self.client.create_work_pool(pool)

    def heartbeat(self, worker: str, seconds: float) -> None:
        """Say that the worker lives."""
        self.client.send_worker_heartbeat(
            work_pool_name=self._pool, worker_name=worker, heartbeat_interval_seconds=seconds
        )

    def deploy(self, schedule: CronSchedule, root: str) -> None:
        """Make or change the deployment of a schedule, with its clock and its alarm."""
        from prefect.client.schemas.actions import DeploymentScheduleCreate
        from prefect.client.schemas.schedules import CronSchedule

        cron = CronSchedule(cron=schedule.cron, timezone=schedule.timezone)
        self.client.create_deployment(
            flow_id=self.client.create_flow_from_name(FLOW_NAME),
            name=schedule.name,
            entrypoint=ENTRYPOINT,
            parameters={"schedule": schedule.name},
            schedules=[DeploymentScheduleCreate(schedule=cron, active=True, slug="cron")],
            paused=schedule.paused,
            description=description(schedule),
            tags=tags(schedule),
            work_pool_name=self._pool,
            job_variables={"working_dir": root},
            enforce_parameter_schema=False,
        )
        self.set_alarm(schedule)

    def withdraw(self, name: str) -> None:
        """Take a schedule's deployment away."""
        found = self._deployments([name])
        for deployment in found:
            self.client.delete_deployment(deployment.id)

    def paused(self, names: Sequence[str]) -> dict[str, bool]:
        """Which of these deployments are paused, also where that was done in Prefect's pages."""
        return {
            found.name: found.paused or not any(each.active for each in found.schedules)
            for found in self._deployments(names)
        }

    def due(self) -> list[FlowRun]:
        """Flow runs of the pool whose time has come."""
        found = self.client.get_scheduled_flow_runs_for_work_pool(
            self._pool, scheduled_before=datetime.now(UTC)
        )
        return [_flow_run(each.flow_run) for each in found]

    def read(self, ids: Sequence[str]) -> dict[str, FlowRun]:
        """These flow runs, without those that the server does not know."""
        from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

        found = {}
        for start in range(0, len(ids), 100):
            wanted = FlowRunFilter(id=FlowRunFilterId(any_=list(ids[start : start + 100])))
            for each in self.client.read_flow_runs(flow_run_filter=wanted):
                found[str(each.id)] = _flow_run(each)
        return found

    def has_laid_out(self, schedule: CronSchedule, due: float) -> bool:
        """Return whether `lay_out` did this lately; after a minute it is worth asking again."""
        told = self._laid_out.get((schedule.name, due), float("-inf"))
        return time.monotonic() - told < _ASK_SECONDS

    def lay_out(
        self,
        schedule: CronSchedule,
        due: float,
        *,
        key: str | None = None,
        reason: str = "laid out",
    ) -> FlowRun:
        """The flow run of an instant; asked twice, by us or by Prefect's scheduler, still one.

        `key` names a run that no clock asked for.
        """
        from prefect.states import Scheduled

        (deployment,) = self._deployments([schedule.name])
        moment = datetime.fromtimestamp(due, ZoneInfo(schedule.timezone))
        (clock,) = deployment.schedules
        made = self.client.create_flow_run_from_deployment(
            deployment.id,
            state=Scheduled(scheduled_time=moment, message=reason),
            # Prefect's scheduler names what it lays out so.
            idempotency_key=key or f"scheduled {deployment.id} {clock.id} {moment}",
            name=f"{schedule.name} {moment:%Y-%m-%d %H:%M}" + (" by hand" if key else ""),
            tags=[*deployment.tags, "by-hand" if key else "scheduled"],
        )
        self._laid_out = {
            (name, other): told
            for (name, other), told in self._laid_out.items()
            if time.monotonic() - told < _ASK_SECONDS
        } | {(schedule.name, due): time.monotonic()}
        return _flow_run(made)

    def pending(self, flow_run_id: str) -> bool:
        """Take a flow run for a process of ours; False where the server says no."""
        from prefect.states import Pending

        answer = self.client.set_flow_run_state(flow_run_id, Pending(message="taken by posttrain"))
        return str(answer.status.value) == "ACCEPT"

    def state(self, flow_run_id: str, kind: str, message: str, *, name: str | None = None) -> None:
        """Put a flow run into a final state of this type, whatever it is in."""
        from prefect.client.schemas.objects import State, StateType

        state = State(type=StateType(kind), name=name, message=message)
        self.client.set_flow_run_state(flow_run_id, state, force=True)

    def close(self, flow_run_id: str, tick: Tick) -> None:
        """Say what the journal says of a tick that is over."""
        kind, name = OUTCOMES[tick.status]
        self.state(flow_run_id, kind, tick.reason, name=name)

    def put_aside(self, flow_run_id: str, tick: Tick) -> None:
        """End a second flow run of one tick."""
        reason = f"another flow run has this tick: {tick.flow_run_id}"
        self.state(flow_run_id, "CANCELLED", reason, name="Skipped")

    def again(self, flow_run_id: str, at: float, message: str, *, name: str) -> None:
        """Let a flow run wait (again) until `at`."""
        from prefect.states import Scheduled

        moment = datetime.fromtimestamp(at, UTC)
        state = Scheduled(scheduled_time=moment, message=message, name=name)
        self.client.set_flow_run_state(flow_run_id, state, force=True)

    def failed(self, tick: Tick, recipe: str) -> None:
        """Raise the event that the schedule's automation answers with its webhook."""
        event = {
            "id": _event_id(tick),
            "occurred": datetime.now(UTC).isoformat(),
            "event": FAILED_EVENT,
            "resource": {
                "prefect.resource.id": f"{_SCHEDULE}.{tick.schedule}",
                "prefect.resource.name": tick.schedule,
            },
            "payload": failure(tick, recipe),
        }
        self.client.request("POST", "/events", json=[event])

    def set_alarm(self, schedule: CronSchedule) -> None:
        """Let an automation of the server call the schedule's webhook, if it has one."""
        if not schedule.notify_url:
            return
        from prefect.automations import Automation
        from prefect.blocks.webhook import Webhook
        from prefect.events.actions import CallWebhook
        from prefect.events.schemas.automations import EventTrigger, Posture

        name = f"posttrain-{schedule.name.replace('_', '-')}"
        hook = Webhook(method="POST", url=schedule.notify_url)
        block = hook.save(name, overwrite=True)
        for found in self.client.read_automations_by_name(name):
            self.client.delete_automation(found.id)
        Automation(
            name=name,
            description=f"tells {schedule.name}'s webhook of a run that failed for good",
            trigger=EventTrigger(
                expect={FAILED_EVENT},
                match={"prefect.resource.id": f"{_SCHEDULE}.{schedule.name}"},
                posture=Posture.Reactive,
                threshold=1,
            ),
            actions=[CallWebhook(block_document_id=block, payload="{{ event.payload | tojson }}")],
        ).create()

    def _deployments(self, names: Sequence[str]) -> list[Any]:
        return list(self.client.read_deployments(deployment_filter=_named(names), limit=200))


@contextmanager
def connect(pool: str) -> Iterator[Server]:
    """A server at PREFECT_API_URL; nothing is asked of it yet."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        yield Server(client, pool)


def away() -> tuple[type[Exception], ...]:
    """What is raised while the server, or the database behind it, does not answer."""
    from httpx import HTTPError
    from prefect.exceptions import PrefectException

    return (HTTPError, PrefectException, OSError)


def failure(tick: Tick, recipe: str) -> dict[str, Any]:
    """What a notice of a failed run says."""
    moment = datetime.fromtimestamp(tick.due, UTC)
    return {
        "schedule": tick.schedule,
        "recipe": recipe,
        "due": moment.isoformat(),
        "attempts": tick.attempt,
        "error": tick.reason,
        "flow_run_id": tick.flow_run_id,
        "look": f"posttrain schedule history {tick.schedule}",
    }


def deployment_digest(schedule: CronSchedule, pool: str) -> str:
    """Return a text that changes with everything that is sent to the server."""
    told = [description(schedule), tags(schedule), schedule.cron, schedule.timezone, pool]
    return json.dumps([*told, schedule.paused, schedule.notify_url])


def _event_id(tick: Tick) -> str:
    from uuid import NAMESPACE_URL, uuid5

    # The same notice sent twice is one event to the server.
    return str(uuid5(NAMESPACE_URL, f"{tick.id}#{tick.attempt}"))


def _named(names: Sequence[str]) -> Any:
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName

    return DeploymentFilter(name=DeploymentFilterName(any_=list(names)))


def _flow_run(found: Any) -> FlowRun:
    moment = found.expected_start_time or found.next_scheduled_start_time
    return FlowRun(
        id=str(found.id),
        schedule=str(found.parameters.get("schedule", "")),
        due=moment.timestamp() if moment else time.time(),
        state=str(found.state.type.value) if found.state else "PENDING",
        since=found.state.timestamp.timestamp() if found.state else 0.0,
    )
