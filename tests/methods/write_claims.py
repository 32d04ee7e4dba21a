"""Write the claims that were run into docs/methods.md: python tests/methods/write_claims.py.

Which verdicts are stale is marked as of the code that the document was written on. It is no part of
what must be up to date: any change of a stage's code makes verdicts stale whose figures stay as
they are, and a document that each such change spoils would be written anew without being read.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "methods.md"
MARK = "<!-- From here on written by tests/methods/write_claims.py. -->\n"


def written(*, standing: bool) -> str:
    """The document with today's verdicts behind the mark; the stale ones marked where asked."""
    from posttrain.methods.find import every_method
    from posttrain.pipeline.gathered_claims import claim_rows
    from posttrain.views.report.claims import claims_in_markdown, tally_of_claims

    rows = claim_rows([*every_method().values()], root=ROOT if standing else None)
    before = DOCUMENT.read_text(encoding="utf-8").partition(MARK)[0]
    tally = f"{tally_of_claims(rows)}. What was tried before: [claims.md](claims.md)."
    return f"{before}{MARK}\n{tally}\n\n{claims_in_markdown(rows)}\n{_arenas()}"


def without_standing(text: str) -> str:
    """The document without what marks verdicts as stale, see above."""
    from posttrain.views.report.claims import STALE

    before, mark, after = text.partition(MARK)
    return (
        before
        + mark
        + re.sub(r"; \d+ of them stale| \(\d+ still count\)", "", after).replace(STALE, "")
    )


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
    DOCUMENT.write_text(written(standing=True), encoding="utf-8")
