"""`posttrain lineage impact`: what depends on a node, and what replacing it takes."""

import json
from pathlib import Path

import click

from posttrain.cli.ledger import existing_ledger, ledger_option, workspace_root
from posttrain.cli.options import Documented
from posttrain.provenance.lineage.impact import Impact
from posttrain.provenance.lineage.impact import impact as measure
from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.queries import LIMIT
from posttrain.provenance.lineage.render.as_json import as_object
from posttrain.provenance.lineage.render.view import caption, details, omission
from posttrain.stage.formatting import counted


@click.command(short_help="List what depends on NODE and must run again.", cls=Documented)
@click.argument("node")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=LIMIT,
    show_default=True,
    help="Nodes to list, nearest first; 0 lists all.",
)
@ledger_option
def impact(node: str, as_json: bool, limit: int, ledger_at: str | None) -> None:
    """List everything that depends on NODE, releases first, and the least that must run again.

    Examples:
      posttrain lineage impact data/curate/traces.parquet  what learned from them
      posttrain lineage impact verifier:numeric               what hangs on a verifier
      posttrain lineage impact 3fa9c1d2 --json             for a program

    """
    root = workspace_root(ledger_at)
    with existing_ledger(ledger_at) as ledger:
        selected = find_node(ledger, node, root=root, cwd=Path.cwd())
        found = measure(ledger, selected, root, limit=limit or None)
    click.echo(_as_json(found) if as_json else _as_text(found))


def _as_text(found: Impact) -> str:
    root = caption(found.graph.nodes[found.graph.root])
    lines = [f"{root} is used by {counted(len(found.affected), 'node')}:"]
    lines += [f"  {caption(node)}  {'  '.join(details(node))}".rstrip() for node in found.affected]
    if not found.affected:
        lines = ["Nothing depends on it."]
    if found.graph.omitted:
        lines.append(f"  {omission(found.graph)}")
    if found.rebuild:
        known = [each.seconds for each in found.rebuild if each.seconds is not None]
        stages = counted(len(found.rebuild), "stage")
        lines.append(f"To replace it, {stages} must run again ({sum(known):.0f} s last time):")
        lines += [f"  {each.recipe}: {each.stage}" for each in found.rebuild]
    return "\n".join(lines)


def _as_json(found: Impact) -> str:
    body = {
        "affected": [as_object(node) for node in found.affected],
        "omitted_artifacts": found.graph.omitted,
        "rebuild": [vars(each) for each in found.rebuild],
    }
    return json.dumps(body, indent=2)
