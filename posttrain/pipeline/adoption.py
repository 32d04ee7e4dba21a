"""Take over what an older version recorded, where today's code would make the same."""

import time
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from posttrain.pipeline.comparison import never_recorded, same_rules
from posttrain.pipeline.plan import Planner
from posttrain.provenance.key import Difference, Key
from posttrain.provenance.ledger import Adoption, ArtifactRecord, Ledger, Run, StageRun

AdoptionAction = Literal["up to date", "adopt", "ask", "run"]

SAME = "what was recorded of code, parameters and inputs is the same; names and rules differ"
_SHOWN = 20


@dataclass(frozen=True)
class Candidate:
    """One stage, and what can become of its last result.

    up to date: nothing to do. adopt: it is taken over. ask: something differs, so that a person has
    to say that it changes no byte. run: it has to be made anew.
    """

    stage: str
    action: AdoptionAction
    reason: str
    differences: tuple[Difference, ...] = ()
    source: StageRun | None = None
    key: Key | None = None


def find_candidates(planner: Planner, anyway: Collection[str] = ()) -> list[Candidate]:
    """Look at every stage, in the order in which they run.

    A stage is taken over only where everything before it is up to date or taken over as well: its
    key holds the digests of what it reads.

    Args:
        planner: Of the recipe; its ledger has the older version's records.
        anyway: Stages whose differences a person answers for.

    """
    made: dict[str, Mapping[str, ArtifactRecord]] = {}
    settled: set[str] = set()
    found: dict[str, Candidate] = {}
    for name in planner.dag.order():
        upstream = planner.dag.upstream(name)
        if missing := [each for each in upstream if each not in made]:
            found[name] = Candidate(name, "run", f"it reads from {', '.join(missing)}")
            continue
        candidate = _candidate(planner, name, made, anyway=name in anyway)
        if candidate.source is not None and candidate.action != "run":
            # Of what waits for a person it is assumed that it comes to the same bytes.
            made[name] = {record.role: record for record in candidate.source.outputs}
        if waits := [each for each in upstream if each not in settled]:
            after = f"once {', '.join(waits)} made the same or was adopted: {candidate.reason}"
            candidate = replace(candidate, action="run", reason=after)
        elif candidate.action in ("up to date", "adopt"):
            settled.add(name)
        found[name] = candidate
    return [found[name] for name in planner.dag.stages]


def _candidate(
    planner: Planner, name: str, made: Mapping[str, Mapping[str, ArtifactRecord]], *, anyway: bool
) -> Candidate:
    decision = planner.decide(name, made)
    if decision.action in ("cached", "restore"):
        return Candidate(name, "up to date", "", source=decision.known, key=decision.key)
    if decision.action == "missing":
        return Candidate(name, "run", decision.reasons[0])
    last = planner.ledger.history.latest(name, planner.recipe.name)
    key = decision.key
    if last is None or key is None:
        return Candidate(name, "run", "it never ran")
    if same_rules(last.components, key.components):
        return Candidate(name, "run", next(iter(decision.reasons), "it changed"))
    if not planner.can_restore(last):
        gone = "its outputs are gone from the workspace and the cache"
        return Candidate(name, "run", gone, source=last, key=key)
    found = tuple(each for each in planner.keys.differences(last, key) if each.component != "rules")
    if inputs := [each for each in found if each.component == "inputs"]:
        return Candidate(name, "run", inputs[0].sentence, found, last, key)
    closure = planner.keys.closure(name, key.components["inputs"])
    unknown = never_recorded(last.components, key.components, closure)
    reason = "; ".join(filter(None, (_tally(found) if found else SAME, unknown)))
    action: AdoptionAction = "adopt" if anyway or not found else "ask"
    return Candidate(name, action, reason, found, last, key)


def _tally(differences: Sequence[Difference]) -> str:
    """How many differences there are of each kind: `5 of code changed, 8 of code added`."""
    kinds = Counter((each.component, each.kind) for each in differences)
    return ", ".join(f"{count} of {what} {kind}" for (what, kind), count in kinds.items())


def adopt(
    ledger: Ledger,
    recipe: str,
    candidates: Sequence[Candidate],
    *,
    command: str,
    why: str,
    folder: str | None = None,
    actor: str | None = None,
) -> list[StageRun]:
    """Record each candidate to adopt under its key of today, with where the bytes are from.

    Args:
        ledger: Where the older version's records are; they stay as they are.
        recipe: Name of the recipe.
        candidates: What `find_candidates` found; those of another action are left.
        command: What was typed.
        why: A person's reason for what was taken over although something differs.
        folder: Of the recipe, from the project's root.
        actor: Who takes it over.

    Returns:
        The stage runs that were appended.

    """
    now = time.time()
    run = Run(
        id=time.strftime("%Y%m%d-%H%M%S-", time.gmtime(now)) + uuid.uuid4().hex[:6],
        recipe=recipe,
        started=now,
        command=command,
        actor=actor,
    )
    taken = [
        (replace(_record(each.source, each.key), run_id=run.id, started=now, ended=now), each)
        for each in candidates
        if each.action == "adopt" and each.source is not None and each.key is not None
    ]
    if not taken:
        return []
    ledger.begin_run(run, folder=folder)
    ledger.record(*(record for record, _ in taken))
    ledger.annotations.adopt(*(_adoption(record, each, now, why) for record, each in taken))
    ledger.finish_run(run.id, "succeeded", time.time())
    return [record for record, _ in taken]


def _record(source: StageRun, key: Key) -> StageRun:
    """As a result that came from the cache: it was made before, and nothing was executed."""
    return replace(
        source,
        id=uuid.uuid4().hex,
        key=key.digest,
        components=key.components,
        status="restored",
        timings={},
        log_path="",
        error=None,
        attempt=1,
        mlflow_run_id=None,
    )


def _adoption(record: StageRun, candidate: Candidate, now: float, why: str) -> Adoption:
    assert candidate.source is not None
    if not candidate.differences:
        return Adoption(record.id, candidate.source.id, candidate.reason, now)
    sentences = [each.sentence for each in candidate.differences[:_SHOWN]]
    if more := len(candidate.differences) - len(sentences):
        sentences.append(f"and {more} more")
    reason = f"{why} ({candidate.reason})"
    return Adoption(record.id, candidate.source.id, reason, now, tuple(sentences))
