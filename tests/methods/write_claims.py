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
    return f"{before}{MARK}\n{tally_of_claims(rows)}.\n\n{claims_in_markdown(rows)}"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    DOCUMENT.write_text(written(), encoding="utf-8")
