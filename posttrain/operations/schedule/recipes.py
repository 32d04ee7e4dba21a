"""Schedules as recipes declare them: the `schedules:` of every recipe.yaml that git has.

What is applied is what the checked-out commit says, so that a schedule and what it runs are of one
text. Nothing here needs a server: `apply` writes notes, and the worker brings Prefect to them.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from posttrain.operations.schedule.moved import require_watchable
from posttrain.operations.schedule.notes import ScheduleNotes, open_notes
from posttrain.operations.schedule.times import Clock, clock_of, require_cron
from posttrain.operations.schedule.worktree import parse_recipe
from posttrain.pipeline.notices import require_command
from posttrain.provenance.git import ask_git, file_at
from posttrain.provenance.ledger.location import RECIPE_FILE
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_UNCOMMITTED = (
    "no recipe is committed yet, and schedules are read from the commit: "
    "git add -A && git commit, then posttrain schedule apply"
)


class ScheduleConfig(StageConfig):
    """When one recipe runs, and what becomes of a run where that is not possible."""

    cron: str
    """Minute, hour, day, month, weekday; or `@hourly`, `@daily`, `@weekly`, `@monthly`."""
    timezone: str = "UTC"
    """Whose wall clock `cron` names, for example Europe/Berlin."""
    missed: str = Field(default="latest", pattern=r"^(skip|latest|backfill:[1-9][0-9]*)$")
    """Which runs are made good at which nobody was there: skip, latest, backfill:N."""
    overlap: Literal["enqueue", "cancel"] = "enqueue"
    """What happens to a run that is due while the one before still runs."""
    only_if_moved: bool = False
    """A run ends at once where neither the commit nor an input has changed."""
    watch: tuple[str, ...] = ()
    """More inputs: `file:PATH`, `remote:NAME/PATH`, `hf:datasets/NAME@REV`, `sql:URL#QUERY`."""
    retries: int = Field(default=1, ge=0)
    """Further attempts at a run that failed."""
    retry_seconds: float = Field(default=30.0, ge=0)
    """Pause before each of them."""
    grace_seconds: float = Field(default=120.0, ge=30)
    """A start that is later than this was missed."""
    overrides: tuple[str, ...] = ()
    """Parameters of every run, as `stage.parameter=value`."""
    release: str | None = None
    """Make a candidate of this release of each success."""
    notify_url: str | None = Field(default=None, pattern=r"^https?://")
    """Web address that gets a failure as JSON once no attempt is left."""
    notify_command: str | None = None
    """Local command that gets the same on standard input."""
    notify_on: tuple[Literal["failure", "missed"], ...] = ("failure", "missed")
    """Which of the two is told of: a run that failed for good, runs that were missed."""
    automation: bool = False
    """Prefect's server calls `notify_url` by itself, also where no worker is there: of runs that
    nobody begins, and of failures that nobody tries again, of which posttrain then does not."""

    @classmethod
    def noted(cls, values: dict[str, Any]) -> "ScheduleConfig":
        """Take values that were checked when they were declared: reading them imports nothing."""
        named = ("watch", "overrides", "notify_on")
        lists = {name: tuple(values[name]) for name in named if name in values}
        return cls.model_construct(**{**values, **lists})

    @field_validator("cron")
    @classmethod
    def _cron(cls, text: str) -> str:
        return require_cron(text)

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"there is no timezone '{name}'; one is Europe/Berlin") from None
        return name

    @field_validator("watch")
    @classmethod
    def _watch(cls, items: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(require_watchable(item) for item in items)

    @model_validator(mode="after")
    def _automation(self) -> Self:
        if self.automation and self.notify_url is None:
            raise ValueError("automation: Prefect calls notify_url; set it, or leave this out")
        return self

    @field_validator("notify_command")
    @classmethod
    def _command(cls, text: str | None) -> str | None:
        return require_command(text)


@dataclass(frozen=True)
class Schedule:
    """A schedule with its place: `recipe` is the folder, from the root of the project."""

    name: str
    recipe: str
    title: str
    config: ScheduleConfig

    @property
    def clock(self) -> Clock:
        """What its instants are computed from."""
        return clock_of(self.config.cron, self.config.timezone)

    def as_text(self) -> str:
        """The whole declaration as one line, the same for the same declaration."""
        return json.dumps({**asdict(self), "config": self.config.model_dump()}, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> "Schedule":
        """Read a declaration that was noted; it was checked when it was declared."""
        values = json.loads(text)
        return cls(**{**values, "config": ScheduleConfig.noted(values["config"])})


def read_schedules(root: Path) -> tuple[list[Schedule], list[str]]:
    """Read the schedules of every recipe of the commit that is checked out.

    Args:
        root: The project.

    Returns:
        The schedules by name, and a sentence for each that cannot be taken.

    """
    found: dict[str, Schedule] = {}
    wrong: list[str] = []
    listed = (ask_git(root, "ls-tree", "-r", "--name-only", "HEAD") or "").splitlines()
    committed = [path for path in listed if Path(path).name == RECIPE_FILE]
    if not committed and _has_recipe(root):
        wrong.append(_UNCOMMITTED)
    for path in committed:
        try:
            given = _read(root, path)
        except UserError as error:
            wrong.append(str(error))
            continue
        for name, title, values in given:
            where = f"{path}: schedules.{name}"
            try:
                _require_name(name, found, where)
                config = ScheduleConfig.parse(values, where=where)
                found[name] = Schedule(name, Path(path).parent.as_posix(), title, config)
            except UserError as error:
                wrong.append(str(error))
    return sorted(found.values(), key=lambda each: each.name), wrong


def apply(root: Path) -> tuple[list[str], list[str]]:
    """Note what the recipes declare now; the worker brings Prefect to it within seconds.

    Args:
        root: The project.

    Returns:
        A sentence for each schedule that is new, changed or gone, and one for each that is wrong.

    """
    schedules, wrong = read_schedules(root)
    with open_notes(root) as notes:
        known = notes.declarations()
        said = [each for schedule in schedules for each in _declare(notes, known, schedule)]
        refused = " ".join(wrong)
        for name in sorted(set(known) - {each.name for each in schedules}):
            # What is refused now may have been declared well before: that one stays.
            if not wrong:
                notes.add(name, 0.0, "removed", "no recipe declares it any more")
                said.append(f"{name}: removed, as no recipe declares it; its history stays")
            elif f"schedules.{name}" not in refused:
                said.append(f"{name}: kept as it was, until every recipe can be read")
    return said, wrong


def _declare(notes: ScheduleNotes, known: dict[str, Any], schedule: Schedule) -> Iterator[str]:
    text = schedule.as_text()
    before = known.get(schedule.name)
    if before is not None and before.text == text:
        return
    # What was due is due still where the clock and the recipe are as before.
    old = Schedule.from_text(before.text) if before is not None else None
    same = old is not None and (old.clock, old.recipe) == (schedule.clock, schedule.recipe)
    event = "changed" if same else "declared"
    notes.add(schedule.name, 0.0, event, f"{schedule.config.cron}", declaration=text)
    yield f"{schedule.name}: {'changed' if before else 'declared'} ({schedule.recipe})"


def _has_recipe(root: Path) -> bool:
    """Return whether there is a recipe where recipes lie, whatever git has of it."""
    return any(any(root.glob(place)) for place in (RECIPE_FILE, f"recipes/*/{RECIPE_FILE}"))


def _read(root: Path, path: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    values = parse_recipe(file_at(root, "HEAD", path) or b"", path)
    given = values.get("schedules")
    if given is not None and not isinstance(given, dict):
        raise UserError(f"{path}: schedules: write a mapping, such as nightly: {{cron: '@daily'}}")
    folder = Path(path).parent
    flow = str(values.get("flow")) if given else ""
    title = folder.name if folder.parent.name == "recipes" else flow.rpartition(".")[2]
    return iter(
        [(str(n), title, v if isinstance(v, dict) else {}) for n, v in (given or {}).items()]
    )


def _require_name(name: str, found: dict[str, Schedule], where: str) -> None:
    if not _NAME.fullmatch(name):
        raise UserError(f"{where}: a name is small letters, digits, - and _")
    if name in found:
        raise UserError(f"{where}: {found[name].recipe} declares '{name}' too; rename one")
