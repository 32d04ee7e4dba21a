"""Bad data: mark it, and refuse whatever would still use it."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

from posttrain.provenance.ledger import ArtifactRecord, Ledger, Recall
from posttrain.provenance.lineage import walk
from posttrain.provenance.lineage.names import Selected, digests_of
from posttrain.stage.errors import UserError


def recall(
    ledger: Ledger,
    node: Selected,
    *,
    reason: str,
    predicate: str | None = None,
    cleared: Sequence[str] = (),
    actor: str | None = None,
) -> list[Recall]:
    """Mark an artifact, every output of a stage run, or every member of a release as bad.

    Args:
        ledger: Where that is recorded.
        node: What is bad.
        reason: For whoever meets it later.
        predicate: Which rows are bad, as a polars SQL expression; None for all of it.
        cleared: Digests of what was made from it and is good all the same.
        actor: Who says so.

    Returns:
        One recall per digest.

    Raises:
        UserError: The reason is empty.

    """
    if not reason.strip():
        raise UserError("a recall needs a reason: --reason 'what is wrong with it'")
    now = time.time()
    recalls = [
        Recall(
            uuid.uuid4().hex, digest, reason, now, predicate, cleared=tuple(cleared), actor=actor
        )
        for digest in digests_of(ledger, node)
    ]
    ledger.annotations.recall(*recalls)
    return recalls


def withdraw(
    ledger: Ledger, node: Selected, *, reason: str, actor: str | None = None
) -> list[Recall]:
    """Take back every recall of a node that is in force, row-wise ones included.

    Args:
        ledger: Where they are recorded.
        node: What is good again.
        reason: Why.
        actor: Who says so.

    Returns:
        The withdrawals.

    Raises:
        UserError: No recall of it is in force.

    """
    digests = digests_of(ledger, node)
    standing = [each for each in ledger.annotations.recalls() if each.digest in digests]
    if not standing:
        raise UserError("no recall of that node is in force; see 'posttrain lineage recalls'")
    taken_back = [
        replace(
            each,
            id=uuid.uuid4().hex,
            reason=reason,
            recalled=time.time(),
            withdrawn=True,
            actor=actor,
        )
        for each in standing
    ]
    ledger.annotations.recall(*taken_back)
    return taken_back


def recalled(ledger: Ledger, digests: Sequence[str]) -> dict[str, str]:
    """Say of artifacts why they must not be used.

    An artifact is bad when it was recalled itself, also in part, or when anything that it was made
    from was. Costs one query while nothing is recalled.

    Args:
        ledger: Where recalls and derivations are.
        digests: Digests of the artifacts.

    Returns:
        The reason by digest; those that may be used are absent.

    """
    bad: dict[str, str] = {}
    for each in ledger.annotations.recalls():
        if each.digest in digests:
            bad.setdefault(each.digest, f"it {_sentence(each)}")
        numbers = walk.numbers_of(ledger.store, digests)
        for number in numbers.keys() & set(tainted(ledger, each)):
            path = _path(ledger, each.digest)
            made_from = f"it is made from {path} ({each.digest[:12]}), which {_sentence(each)}"
            bad.setdefault(numbers[number], made_from)
    return bad


def refuse_recalled(ledger: Ledger, artifacts: Sequence[ArtifactRecord]) -> None:
    """Refuse what must not be used or released.

    Args:
        ledger: Knows the recalls.
        artifacts: To be used.

    Raises:
        UserError: One of them is recalled, or was made from what is; with the reason.

    """
    reasons = recalled(ledger, sorted({record.digest for record in artifacts}))
    for record in artifacts:
        if record.digest in reasons:
            raise UserError(
                f"{record.path}: {reasons[record.digest]}; "
                "make it anew from other data, or withdraw the recall"
            )


def tainted(ledger: Ledger, recall: Recall) -> list[int]:
    """Find the artifacts that a recall forbids: what it names and all that was made from it.

    Args:
        ledger: Knows what was made from what.
        recall: Those in its ``cleared`` are not passed.

    Returns:
        Numbers of artifacts.

    """
    sources = list(walk.numbers_of(ledger.store, [recall.digest]))
    # What was made anew from other rows is not passed, nor what was made from that alone.
    cleared = list(walk.numbers_of(ledger.store, recall.cleared))
    return walk.descendants(ledger.store, sources, without=cleared)


def _sentence(recall: Recall) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(recall.recalled))
    if recall.predicate is None:
        return f"was recalled on {day}: {recall.reason}"
    return f"has rows that were recalled on {day}: {recall.reason} (rows where {recall.predicate})"


def _path(ledger: Ledger, digest: str) -> str:
    """Where an artifact was, wherever that was last."""
    paths = ledger.store.column(
        "SELECT MAX(p.path) FROM artifacts a JOIN edges e ON e.artifact=a.num"
        " JOIN ports p ON p.num=e.port WHERE a.digest=:digest",
        {"digest": digest},
    )
    return str(paths[0])
