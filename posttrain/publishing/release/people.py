"""The people behind a release: who ran its stages, reviewed its rows, and released it."""

from collections.abc import Mapping
from typing import Any

from posttrain.provenance.actor import actor_at
from posttrain.provenance.ledger import Ledger
from posttrain.publishing.release.chain import Chain


def people_behind(ledger: Ledger, chain: Chain, lineage: Mapping[str, Any]) -> dict[str, Any]:
    """Collect who did what, as far as it was recorded.

    Args:
        ledger: That knows the runs.
        chain: The stage runs behind the release.
        lineage: The graph above the policy, as the release has it.

    Returns:
        `ran` and `reviewed`, names in order, and `released`, a name or None.

    """
    runs = (ledger.run(run_id) for run_id in {each.run_id for each in chain.stages})
    reviewers = {
        str(node["name"]).removeprefix("reviewer:")
        for node in lineage["nodes"]
        if str(node["id"]).startswith("reviewer:")
    }
    return {
        "ran": sorted({run.actor for run in runs if run is not None and run.actor}),
        "reviewed": sorted(reviewers),
        "released": actor_at(chain.root),
    }
