"""Write the claims that were run into docs/methods.md: python tests/methods/write_claims.py."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "methods.md"
MARK = "<!-- From here on written by tests/methods/write_claims.py. -->\n"


def written() -> str:
    """The document with today's verdicts behind the mark."""
    from posttrain.cli.method_claims import claim_rows
    from posttrain.methods.find import every_method
    from posttrain.views.report.claims import claims_in_markdown, tally_of_claims

    rows = claim_rows([*every_method().values()], root=None)
    before = DOCUMENT.read_text(encoding="utf-8").partition(MARK)[0]
    tally = f"{tally_of_claims(rows)}. What was tried before: [claims.md](claims.md)."
    return f"{before}{MARK}\n{tally}\n\n{claims_in_markdown(rows)}\n{_arenas()}"


def _arenas() -> str:
    """A row for each arena that ships: what is asked, what its base must show, who claims there."""
    from posttrain.methods.find import arena_files, every_method, find_arena

    made = [claim.arena for each in every_method().values() for claim in each.method.claims]
    rows = []
    for arena in map(find_arena, sorted(arena_files())):
        told = (
            f"{each.metric} {sign} {bound:g}"
            for each in arena.contract
            for sign, bound in (("≥", each.at_least), ("≤", each.at_most))
            if bound is not None
        )
        says, number = " ".join(arena.says.split()), made.count(arena.name)
        rows.append(f"| `{arena.name}` | {says} | {', '.join(told)} | {number} |")
    head = "| arena | asked, and of which base | its base must show | claims |\n|---|---|---|---|\n"
    return "## Arenas that ship\n\n" + head + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    DOCUMENT.write_text(written(), encoding="utf-8")
