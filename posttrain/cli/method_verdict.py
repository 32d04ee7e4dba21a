"""A verdict that a claim's run came to: held against the one that was kept before, and kept."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from posttrain.data.tables import rows_digest
from posttrain.methods.claim import MethodClaim
from posttrain.methods.method import Method
from posttrain.pipeline.claim_recipe import digest_of_claim
from posttrain.pipeline.execution.session import Session
from posttrain.pipeline.verdicts import KeptVerdict, claim_keys, keep_verdict, kept_verdicts
from posttrain.provenance.git import revision_of
from posttrain.views.report.claims import ClaimFigure

VERDICT_STAGE = "verdict"


def first_seed(session: Session) -> dict[str, tuple[str, str]]:
    """Stage and output that the verdict reads of the first seed, by port: `reports.seed_1`, ..."""
    read = session.dag.stages[VERDICT_STAGE].inputs.items()
    return {port: (str(ref.stage), str(ref.output)) for port, ref in read if port.endswith("_1")}


def made_of_first_seed(session: Session) -> dict[str, str]:
    """Digest of the rows of each table that the verdict reads of the first seed.

    What else it reads is made from them; the figures that come of it are in its decisions.
    """
    tables = {
        (stage, record.role): session.workspace.output(record.path)
        for stage, run in session.records.items()
        for record in run.outputs
        if record.rows is not None
    }
    read = first_seed(session).items()
    return {port: rows_digest(tables[made]) for port, made in read if made in tables}


def moved_since(known: KeptVerdict, session: Session, decided: Mapping[str, Any]) -> list[str]:
    """Name what today's code makes otherwise of the first seed: tables and figures.

    Args:
        known: The verdict that was kept.
        session: In which the first seed was run again, with a verdict on it alone.
        decided: That verdict.

    Returns:
        Ports of tables with other rows, and metrics with other values; empty where all is the same.

    """
    made = made_of_first_seed(session)
    tables = [port for port in sorted(made) if made[port] != known.made.get(port)]
    pairs = zip(decided["decisions"], known.decisions, strict=True)
    figures = [
        f"{now['metric']} of {now['against'] if side == 'theirs' else known.method}"
        for now, before in pairs
        for side in ("ours", "theirs")
        if now[side][0] != before[side][0]
    ]
    return tables + figures


def commit_of(session: Session) -> str:
    """The commit that the session's project is at; empty where nothing was committed."""
    return revision_of(session.workspace.root).commit or ""


class Keeping(NamedTuple):
    """What became of a verdict that was just decided."""

    told: tuple[str, ...]
    agrees: bool = True
    """False where the same claim was decided before, in another word."""


def keep_decided(root: Path, kept: KeptVerdict) -> Keeping:
    """Add a verdict to the project's, unless the last one of its claim is the very same."""
    known = kept_verdicts().get((kept.method, kept.claim))
    if known and replace(known, minutes=kept.minutes, commit=kept.commit, rechecked="") == kept:
        return Keeping(("kept already, and the same",))
    where = f"kept in {keep_verdict(root, kept).relative_to(root)}"
    if known is None:
        return Keeping((where,))
    if known.digest != kept.digest:
        told = f"the claim says something else than when it was decided before ({known.verdict})"
        return Keeping((f"{told}, so the two are not compared", where))
    if known.artifact == kept.artifact:
        return Keeping(("the very same artifact as the verdict that was kept", where))
    agrees = known.verdict == kept.verdict
    verb = "agrees with" if agrees else "differs from"
    told = f"{kept.verdict}: it {verb} the verdict that was kept, {known.verdict}"
    return Keeping((f"{told}, in another artifact", *_beside(known, kept), where), agrees)


def _beside(known: KeptVerdict, kept: KeptVerdict) -> Iterator[str]:
    """Set the figures of a claim that was decided twice beside each other."""
    pairs = [*zip(kept.decisions, known.decisions, strict=False)]
    for now, before in ([ClaimFigure.read(each) for each in pair] for pair in pairs):
        yield f"  {now.told}; kept: {before.told}"
    if not pairs:
        # It was kept by a version that noted no figures.
        yield f"  now: {kept.sentence}"
        yield f"  kept: {known.sentence}"


def decided_verdict(
    session: Session, method: Method, claim: MethodClaim, decided: dict[str, Any], minutes: float
) -> KeptVerdict:
    """Make the line that is kept of a claim, of what its last stage decided in a session."""
    made = session.records[VERDICT_STAGE]
    return KeptVerdict(
        method=method.name,
        claim=claim.name,
        verdict=decided["verdict"],
        sentence=decided["sentence"],
        seeds=decided["seeds"],
        minutes=round(minutes, 1),
        commit=commit_of(session),
        digest=digest_of_claim(method, claim),
        keys=claim_keys(method, claim, claim.seeds, session.workspace.root),
        artifact=made.outputs[0].digest,
        decisions=decided["decisions"],
        made=made_of_first_seed(session),
    )
