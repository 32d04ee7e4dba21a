"""`posttrain.plan`: what a run would do, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.operations.python.project import AnyPath, Overrides, override_words
from posttrain.operations.python.shown import Displayed, Grid
from posttrain.stage.formatting import duration

if TYPE_CHECKING:
    from posttrain.pipeline.execution.session import Session
    from posttrain.pipeline.plan import Action, Decision

LABELS: Mapping[str, str] = {
    "cached": "up to date",
    "restore": "restore",
    "run": "run",
    "pending": "maybe",
    "missing": "cannot tell",
}
"""What people read of each action."""
_OTHER_RULES = (
    "An older posttrain recorded some of them, whose keys had other rules: what is the same need"
    " not run again, see posttrain adopt."
)


@dataclass(frozen=True)
class PlannedStage:
    """What will happen to one stage.

    Attributes:
        stage: Its name.
        action: `cached`: its outputs are in place. `restore`: they come back from the cache.
            `run`: it executes. `pending`: that depends on whether a stage before it makes other
            bytes. `missing`: a file that it reads is not there.
        reasons: Sentences, the first cause in front.
        seconds: How long its last execution took; None where there was none.

    """

    stage: str
    action: "Action"
    reasons: tuple[str, ...]
    seconds: float | None


@dataclass(frozen=True, repr=False)
class RunPlan(Displayed):
    """What a run of a recipe would do, stage by stage in the order of the flow.

    Attributes:
        recipe: Name of the recipe.
        stages: What will happen to each.
        notes: What is to be known of the recipe though nothing is refused.
        closing: Where stages run, how many do, and how long that took last.

    """

    recipe: str
    stages: tuple[PlannedStage, ...]
    notes: tuple[str, ...]
    closing: tuple[str, ...]

    @property
    def to_run(self) -> tuple[str, ...]:
        """Names of the stages that run, or may run."""
        return tuple(each.stage for each in self.stages if each.action in ("run", "pending"))

    def rows(self, *, verbose: bool = False, hint: str = "") -> list[tuple[str, str, str, str]]:
        """Stage, what happens to it, how long it took last, and why.

        Args:
            verbose: Every reason in place of the first.
            hint: How to see the others, said where there are some.

        Returns:
            A row for each stage.

        """
        return [_row(each, verbose=verbose, hint=hint) for each in self.stages]

    def grid(self) -> Grid:
        """See `Displayed`."""
        below = [*(f"note: {each}" for each in self.notes), *self.closing]
        headings = ("stage", "action", "last took", "why")
        return Grid(f"plan of {self.recipe}", headings, self.rows(), below)


def plan(recipe: AnyPath = ".", overrides: Overrides = (), *, start: str | None = None) -> RunPlan:
    """Decide what `posttrain.run` would do with a recipe, without doing it.

    Args:
        recipe: A recipe's file, or a folder that has `recipe.yaml`.
        overrides: Parameters to change, such as `{"rl.steps": 20}`.
        start: A stage that is to run with all after it, up to date or not.

    Returns:
        The plan; a notebook shows it as a table.

    Raises:
        UserError: The recipe cannot be read, or would be refused; nothing was written.

    """
    from posttrain.pipeline.execution.session import open_session

    with open_session(Path(recipe), override_words(overrides)) as session:
        decisions = decide_all(session, start=start)
        planned = described(session, decisions)
        refuse_what_stands_in_the_way(session, decisions)
        return planned


def decide_all(
    session: "Session", *, start: str | None = None, only: str | None = None
) -> "list[Decision]":
    """Decide what happens to the stages, and refuse what could not succeed.

    Args:
        session: Of the recipe.
        start: A stage that runs with all after it.
        only: The one stage that is asked about.

    Returns:
        A decision for each stage.

    """
    from posttrain.pipeline.execution.compatibility import refuse_incompatible

    if start:
        session.force(start)
    decisions = session.single(only) if only else session.planner.plan()
    refuse_incompatible(session.planner, decisions)
    check_release(session)
    check_beside(session)
    return decisions


def described(session: "Session", decisions: "Sequence[Decision]") -> RunPlan:
    """Say what was decided as a plan.

    Args:
        session: Of the recipe.
        decisions: About each of its stages.

    Returns:
        The plan.

    """
    from posttrain.operations.plan_notes import notes_on

    running = _running(decisions)
    for each in running:
        session.dag.stages[each.stage].config.check_names(each.stage)
    return RunPlan(
        session.recipe.name,
        tuple(PlannedStage(d.stage, d.action, d.reasons, d.seconds) for d in decisions),
        tuple(notes_on(session, decisions)),
        (*_places(session), *_total(running, len(decisions))),
    )


def check_release(session: "Session") -> None:
    """Say what no release would pass before the hours that it takes to get there."""
    if session.recipe.release:
        from posttrain.publishing.release.config import ReleaseConfig

        release = ReleaseConfig.parse(session.recipe.release, where="release")
        release.refuse_outdated()
        release.refuse_unknown(session.dag)


def check_beside(session: "Session") -> None:
    """Refuse what the sections `cost` and `notify` may not say before anything runs."""
    from posttrain.pipeline.notices import notice_settings

    session.recipe.cost_settings()
    notice_settings(session.recipe.notify)


def refuse_what_stands_in_the_way(session: "Session", decisions: "Sequence[Decision]") -> None:
    """Refuse a plan of which a file is missing, or whose results could not be written."""
    session.refuse_missing(decisions)
    session.refuse_places(makes=bool(_running(decisions)))


def _running(decisions: "Sequence[Decision]") -> "list[Decision]":
    return [each for each in decisions if each.action in ("run", "pending")]


def _places(session: "Session") -> list[str]:
    """Which stages run elsewhere than in one process of this machine."""
    told = {name: stage.resources.told() for name, stage in session.dag.stages.items()}
    return [f"{name} runs on {place}" for name, place in told.items() if place]


def _total(running: "Sequence[Decision]", num_stages: int) -> list[str]:
    from posttrain.provenance.key import is_of_other_rules

    known = [each.seconds for each in running if each.seconds is not None]
    text = f"{len(running)} of {num_stages} stages to run"
    which = "they" if len(known) == len(running) else f"{len(known)} of them"
    lasted = f"; last time {which} took {duration(sum(known))}" if known else ""
    adopting = any(each.reasons[:1] and is_of_other_rules(each.reasons[0]) for each in running)
    return [f"{text}{lasted}.", *([_OTHER_RULES] if adopting else [])]


def _row(each: PlannedStage, *, verbose: bool, hint: str) -> tuple[str, str, str, str]:
    reasons = each.reasons if verbose else each.reasons[:1]
    more = len(each.reasons) - len(reasons)
    why = "\n".join(reasons) + (f" (and {more} more{hint})" if more else "")
    seconds = "" if each.seconds is None else duration(each.seconds)
    return each.stage, LABELS[each.action], seconds, why
