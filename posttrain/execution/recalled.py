"""Refuse to build on data that was recalled."""

from collections.abc import Sequence

from posttrain.errors import UserError
from posttrain.lineage.recalls import recalled
from posttrain.pipeline.ledger import ArtifactRecord, Ledger


def refuse_recalled(ledger: Ledger, artifacts: Sequence[ArtifactRecord]) -> None:
    """Raise a `UserError` with the reason if any of `artifacts` must not be used."""
    reasons = recalled(ledger, sorted({record.digest for record in artifacts}))
    for record in artifacts:
        if record.digest in reasons:
            raise UserError(
                f"{record.path}: {reasons[record.digest]}; "
                "make it anew from other data, or withdraw the recall"
            )
