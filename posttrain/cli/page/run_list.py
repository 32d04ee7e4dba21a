"""Runs as the table of runs and the page of one show them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.cli.page.headlines import headlines_of
from posttrain.cli.page.project import Project
from posttrain.pipeline.execution.display import read_progress
from posttrain.provenance.ledger import Ledger, Run, StageRun
from posttrain.provenance.ledger.location import STATE_DIR
from posttrain.stage.formatting import counted, duration

_LOG_BYTES = 64_000
_ORDER = ("failed", "stopped", "succeeded", "restored", "cached")
_WORDS = {"succeeded": "ran", "cached": "up to date"}


@dataclass(frozen=True)
class ListedRun:
    """One run, with what it found out."""

    run: Run
    stage_runs: Sequence[StageRun]
    headlines: Sequence[str]

    @property
    def took(self) -> str:
        """How long it ran, or runs."""
        ended = time.time() if self.run.ended is None else self.run.ended
        if self.run.status == "killed":
            return ""
        return duration(max(0.0, ended - self.run.started))

    @property
    def stages(self) -> str:
        """How many of its stages ended how."""
        ends = [each.status for each in self.stage_runs]
        counts = [(_WORDS.get(end, end), ends.count(end)) for end in _ORDER if end in ends]
        return ", ".join(f"{count} {word}" for word, count in counts)

    @property
    def commit(self) -> str:
        """At which commit, and whether files had changed."""
        if self.run.git_commit is None:
            return ""
        return self.run.git_commit[:10] + (" with changes" if self.run.git_dirty else "")

    @property
    def changed(self) -> str:
        """Parameters that its command changed."""
        return ", ".join(f"{name}={value}" for name, value in self.run.overrides.items())


def list_run(project: Project, ledger: Ledger, run: Run) -> ListedRun:
    """Gather what is shown of a run.

    Args:
        project: Where its reports lie.
        ledger: That knows it.
        run: Which.

    Returns:
        It, with its stages and figures.

    """
    stage_runs = last_attempts(ledger.stage_runs(run.id))
    return ListedRun(run, stage_runs, headlines_of(project, stage_runs))


def last_attempts(stage_runs: Sequence[StageRun]) -> list[StageRun]:
    """Keep the last try of every stage."""
    return list({each.stage: each for each in stage_runs}.values())


@dataclass(frozen=True)
class LiveStage:
    """A stage that executes now."""

    name: str
    began: float
    reason: str
    done: int | None = None
    total: int | None = None
    unit: str = ""

    @property
    def took(self) -> str:
        """How long it has been at work."""
        return duration(max(0.0, time.time() - self.began))

    @property
    def left(self) -> str:
        """How long the rest takes at the pace so far."""
        if not self.done or not self.total or self.done >= self.total:
            return ""
        spent = max(0.0, time.time() - self.began)
        return duration(spent * (self.total - self.done) / self.done)


def live_stages(project: Project, run: Run) -> list[LiveStage]:
    """Say what a run is at.

    Args:
        project: Whose run it is.
        run: Which.

    Returns:
        The stages that execute; none of a run that is over.

    """
    if run.status != "running":
        return []
    found = read_progress(_run_folder(project, run.id))
    return [
        LiveStage(
            name,
            float(each.get("began", run.started)),
            str(each.get("reason", "")),
            each.get("done"),
            each.get("total"),
            str(each.get("unit", "")),
        )
        for name, each in found.items()
    ]


def log_of(project: Project, run: Run, stage: str, recorded: str) -> str:
    """Read the end of a stage's log.

    Args:
        project: Whose run it is.
        run: Which.
        stage: Its name.
        recorded: Path of the log as its record has it; empty where there is no record yet.

    Returns:
        The last lines; empty where there is none.

    """
    own = _run_folder(project, run.id) / f"{stage}.log"
    places = [own, *(tree / recorded for tree in _trees(project) if recorded)]
    return next((text for text in map(tail_of, places) if text), "")


def _trees(project: Project) -> list[Path]:
    """The project, and the worktrees in which schedules run it."""
    return [project.root, *sorted(project.root.glob(f"{STATE_DIR}/worktrees/*/tree"))]


def _run_folder(project: Project, run_id: str) -> Path:
    folders = [tree / STATE_DIR / "runs" / run_id for tree in _trees(project)]
    return next((each for each in folders if each.is_dir()), folders[0])


def tail_of(path: Path) -> str:
    """Read the end of a text file, from the beginning of a line."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _LOG_BYTES))
            text = stream.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    if size <= _LOG_BYTES:
        return text
    return f"(the last of {counted(size, 'byte')})\n{text.partition(chr(10))[2]}"
