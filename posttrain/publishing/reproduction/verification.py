"""What was found when a run was run again: one shape for every level, to show and to keep."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from posttrain.pipeline.execution.display import Display
from posttrain.pipeline.execution.session import Session
from posttrain.provenance.circumstances import differences, together
from posttrain.provenance.ledger import Ledger, StageRun, Verification
from posttrain.publishing.reproduction.project import Mirror, Restorer, last_run, run_recipe
from posttrain.publishing.reproduction.replaying import ReplayOutcome, replay_stage, replayable
from posttrain.publishing.reproduction.seeds import SeedQuestion, run_with_seeds
from posttrain.publishing.reproduction.subject import (
    EVERYTHING,
    WORK,
    Subject,
    find_subject,
    opened,
)


@dataclass(frozen=True)
class VerifiedItem:
    """One thing that was compared; `note` says in words what is the matter, if anything is.

    `agrees` is None where other bytes were to be expected: it was made with other kernels.
    """

    stage: str
    what: str
    recorded: str
    again: str
    agrees: bool | None
    note: str = ""


@dataclass(frozen=True)
class LevelCheck:
    """The outcome of a verification: at which level, by which rule, and what was compared."""

    name: str
    level: str
    rule: str
    findings: tuple[VerifiedItem, ...]
    subjects: Mapping[str, bool]
    """Ids of the run and of its stage runs, each with whether it holds."""
    details: Mapping[str, Any]
    advice: str = ""

    @property
    def holds(self) -> bool | None:
        """True where everything that was compared agrees, None where nothing can be said."""
        return together(finding.agrees for finding in self.findings)

    def verifications(self) -> list[Verification]:
        """What the ledger keeps of it."""
        now = time.time()
        details = {name: str(value) for name, value in self.details.items()}
        return [
            Verification(each, self.level, holds, now, details)
            for each, holds in self.subjects.items()
        ]


def verify_bytes(ledger: Ledger, name: str, root: Path) -> LevelCheck:
    """L0: every stage again on the inputs that it had; every output has the same digest."""
    subject = find_subject(ledger, name)
    with (
        opened(subject, root, groups=EVERYTHING) as session,
        TemporaryDirectory(prefix="posttrain-verify-") as folder,
    ):
        findings = tuple(_run_again(session, subject, Path(folder)))
    verdicts = {
        name: together(each.agrees for each in findings if each.stage == name)
        for name in subject.records
    }
    at_fault = sorted(name for name, agrees in verdicts.items() if agrees is False)
    incomparable = sorted(name for name, agrees in verdicts.items() if agrees is None)
    advice = []
    if at_fault:
        advice.append(f"not reproducible: {', '.join(at_fault)}")
    if incomparable:
        why = dict.fromkeys(each.note for each in findings if each.agrees is None)
        advice.append(
            f"{'; '.join(why)}: not comparable at L0 ({', '.join(incomparable)}); verify on a "
            "processor of that kind, or make the bytes with run.kernels: portable"
        )
    return LevelCheck(
        subject.name,
        "L0",
        "every output of every stage, made again from the inputs that it had, has the same digest",
        findings,
        subject.with_run({each.id: verdicts[name] for name, each in subject.records.items()}),
        {"outputs": len(findings), "at_fault": ",".join(at_fault)},
        "; ".join(advice),
    )


def verify_replay(ledger: Ledger, name: str, root: Path, display: Display) -> LevelCheck:
    """L2: the stored rollouts alone lead each learner to the same weights."""
    outcomes: list[ReplayOutcome] = []
    for record in replayable(ledger, name, root):
        display.started(record.stage, ("from its stored rollouts",))
        began = time.monotonic()
        outcomes.append(replay_stage(record, root, display))
        status = "succeeded" if outcomes[-1].equal else "failed"
        display.finished(record.stage, status, time.monotonic() - began)
    subject = find_subject(ledger, name)
    return LevelCheck(
        subject.name,
        "L2",
        "each learner, given the starting policy and the stored rollouts, ends at the same weights"
        " (by their own digest, not that of the files around them)",
        tuple(
            VerifiedItem(
                each.stage,
                "weights",
                each.stored,
                each.replayed,
                _verdict(each),
                f"made with {', '.join(each.apart)}" if _verdict(each) is None else "",
            )
            for each in outcomes
        ),
        subject.with_run({each.stage_run: _verdict(each) for each in outcomes}),
        {"replayed": len(outcomes)},
    )


def _verdict(outcome: ReplayOutcome) -> bool | None:
    return outcome.equal or (None if outcome.apart else False)


def verify_seeds(
    ledger: Ledger, name: str, root: Path, asked: SeedQuestion, report: Callable[[str], None]
) -> LevelCheck:
    """L3: the recorded figure is one that further seeds could have given."""
    subject = find_subject(ledger, name)
    with (
        opened(subject, root, groups=WORK) as session,
        TemporaryDirectory(prefix="posttrain-verify-") as folder,
    ):
        found = run_with_seeds(session, subject, Path(folder), asked, report)
    again = f"{found.mean:.4f}, {found.low:.4f} to {found.high:.4f} for one seed"
    stages = [each.stage for each in subject.records.values() if found.metric in each.metrics]
    finding = VerifiedItem(
        stages[-1], found.metric, f"{found.recorded:.4f}", again, agrees=found.holds
    )
    advice = ""
    if not found.enough:
        reach = (found.mean_high - found.mean_low) / 2
        advice = (
            f"undecided: {len(found.values)} seeds tell the mean to within {reach:.4f} only; "
            f"{found.needed} seeds tell it to within {found.within:g}: --seeds {found.needed}"
        )
    elif not found.inside:
        advice = "the recorded value is not one that another seed would give"
    return LevelCheck(
        subject.name, "L3", found.rule, (finding,), {subject.id: found.holds}, asdict(found), advice
    )


def _run_again(session: Session, subject: Subject, folder: Path) -> Iterator[VerifiedItem]:
    """Compare every output of every stage, each stage run on exactly the inputs that it had.

    The whole recipe runs first. Where a stage made other bytes, those after it were given another
    input: they run once more by themselves, so that only the stage at fault is found.
    """
    mirror = Mirror(session, folder / "project")
    restore = Restorer(session.workspace.root, folder)
    records = subject.records
    made: dict[str, StageRun] = {}
    if records.keys() == session.dag.stages.keys():
        run_recipe(mirror.root, mirror.recipe)
        made = last_run(mirror.root)
    for name in (name for name in session.dag.order() if name in records):
        record, again = records[name], made.get(name)
        if again is None or _inputs_of(again) != _inputs_of(record):
            mirror.place_inputs(restore, record)
            again = mirror.run("--only", name).get(name)
        finished = again is not None and again.status != "failed"
        digests = {each.role: each.digest for each in again.outputs} if again and finished else {}
        for each in record.outputs:
            other = digests.get(each.role)
            agrees: bool | None = each.digest == other
            note = ""
            if again is not None and other is not None and not agrees:
                apart = differences(record.circumstances, again.circumstances)
                agrees = None if apart else False
                note = (
                    f"made with {', '.join(apart)}" if apart else "other bytes from the same inputs"
                )
            yield VerifiedItem(name, each.path, each.digest, other or "failed", agrees, note)


def _inputs_of(run: StageRun) -> dict[str, str]:
    return {record.role: record.digest for record in run.inputs}
