"""A schedule as its owner declares it, checked when it is declared."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from posttrain.stage.errors import UserError

MissedPolicy = Literal["skip", "latest", "backfill"]
Collision = Literal["queue", "cancel-new"]

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
# Later than this, a tick was missed: nobody was there to start it.
GRACE_SECONDS = 120.0
RETRY_SECONDS = 30.0


@dataclass(frozen=True)
class CronSchedule:
    """When one recipe runs, and what to do where that is not possible. Times in UTC seconds."""

    name: str
    recipe: str
    """Folder of the recipe, relative to the project."""
    cron: str
    title: str = ""
    """The recipe's name, by which its runs are known elsewhere."""
    timezone: str = "UTC"
    on_missed: MissedPolicy = "latest"
    backfill: int = 0
    """How many missed ticks `backfill` makes good at most, the newest ones."""
    only_if_moved: bool = False
    watch: tuple[str, ...] = ()
    collision: Collision = "queue"
    retries: int = 1
    retry_seconds: float = RETRY_SECONDS
    grace_seconds: float = GRACE_SECONDS
    overrides: tuple[str, ...] = ()
    release: str | None = None
    """Name of the release of which a success makes a candidate."""
    notify_url: str | None = None
    notify_command: str | None = None
    work_pool: str = "posttrain"
    since: float = field(default_factory=time.time)
    """No tick before this belongs to the schedule: it was declared or resumed then."""
    paused: bool = False

    def missed(self) -> str:
        """The policy as it was written."""
        return f"backfill:{self.backfill}" if self.on_missed == "backfill" else self.on_missed

    def as_values(self) -> dict[str, Any]:
        """Every field in a form that JSON can hold."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return values | {"watch": list(self.watch), "overrides": list(self.overrides)}

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "CronSchedule":
        """The inverse of `as_values`."""
        lists = {name: tuple(values[name]) for name in ("watch", "overrides")}
        return cls(**{**values, **lists})


def paused_or_resumed(schedule: CronSchedule, *, paused: bool) -> CronSchedule:
    """The schedule after a pause or a resume; what fell into the pause was not missed."""
    if paused or not schedule.paused:
        return replace(schedule, paused=paused)
    return replace(schedule, paused=False, since=time.time())


def checked(schedule: CronSchedule) -> CronSchedule:
    """`schedule`, or a sentence about the first thing that is wrong with it."""
    if not _NAME.fullmatch(schedule.name):
        raise UserError(
            f"the name of a schedule is small letters, digits, - and _, got '{schedule.name}'; "
            "give one with --name"
        )
    try:
        ZoneInfo(schedule.timezone)
    except (ZoneInfoNotFoundError, ValueError):
        raise UserError(
            f"there is no timezone '{schedule.timezone}'; name one such as Europe/Berlin"
        ) from None
    require_cron(schedule.cron)
    return schedule


def require_cron(cron: str) -> None:
    """Five fields that name a time which comes; seconds are no business of cron."""
    if len(cron.split()) != 5:
        raise UserError(
            f"--cron takes five fields (minute hour day month weekday), got '{cron}'; "
            'for two in the morning: --cron "0 2 * * *"'
        )
    from cronsim import CronSim, CronSimError

    try:
        next(CronSim(cron, datetime(2024, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration) as error:
        reason = str(error) or "it never comes"
        raise UserError(f"--cron '{cron}' is no time: {reason}; see `man 5 crontab`") from None


def parse_missed(text: str) -> tuple[MissedPolicy, int]:
    """`skip`, `latest` or `backfill:N` as a policy and its number."""
    if text == "skip":
        return "skip", 0
    if text == "latest":
        return "latest", 0
    if match := re.fullmatch(r"backfill:([1-9][0-9]*)", text):
        return "backfill", int(match[1])
    raise UserError(f"--on-missed takes skip, latest or backfill:N, got '{text}'")


def parse_concurrency(text: str) -> Collision:
    """`1:queue` or `1:cancel-new`; more than one run of a schedule has no use."""
    choices: dict[str, Collision] = {"1:queue": "queue", "1:cancel-new": "cancel-new"}
    if text not in choices:
        raise UserError(
            f"--concurrency takes 1:queue or 1:cancel-new, got '{text}'; "
            "two runs of a recipe at once are two schedules"
        )
    return choices[text]
