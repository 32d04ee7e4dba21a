"""Claims and what became of them: a page, a table in Markdown, and the picture of each figure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.stage.formatting import counted
from posttrain.stage.spec import ArtifactKind
from posttrain.views.charts import chart_style
from posttrain.views.report.evaluation import read_json
from posttrain.views.report.facts import StageFacts, found
from posttrain.views.report.templates import template

CLAIM_NOT_RUN = "not run"
STALE = " (stale)"
"""Behind the verdict of a claim where what it rests on moved since."""
HEADING = (
    "family",
    "method",
    "claim",
    "arena",
    "against",
    "figure [95%] (ours against theirs)",
    "verdict",
    "seeds",
    "min",
)
MEANINGS = {
    "confirmed": "the whole interval lies where the claim said it would, by the margin stated"
    " beforehand",
    "refuted": "the whole interval lies elsewhere: the margin is shown not to be reached, which may"
    " be a tie and need not be worse",
    "undecided": "the interval reaches to both sides",
    "void": "the arena's base, the mechanism or the amounts were not as the claim needs them",
    "stale": "code or settings that the verdict rests on moved since, so that it does not count"
    " until posttrain method recheck or run",
}
"""What the word of a verdict says, and the mark behind it."""
_WIDTH, _INSET = 200.0, 6.0


@dataclass(frozen=True)
class ClaimFigure:
    """One comparison of a claim: ours minus theirs, with its interval over seeds."""

    metric: str
    direction: str
    """higher, lower, not_worse or equal."""
    margin: float
    against: str
    """The other arm, or the base's stage; empty where ours is compared with a number, `theirs`."""
    ours: float
    theirs: float
    difference: float
    low: float | None
    """None where a single seed, or equal figures, leave no interval."""
    high: float | None
    outcome: str
    better: str
    """Which way `not_worse` looks: higher or lower."""

    @classmethod
    def read(cls, decision: Mapping[str, Any]) -> "ClaimFigure":
        """Read a comparison as the artifact of a verdict has it.

        Args:
            decision: An entry of `decisions`.

        Returns:
            Its figures, in means over seeds.

        """
        ours, theirs = (sum(each) / len(each) for each in (decision["ours"], decision["theirs"]))
        return cls(
            metric=decision["metric"],
            direction=decision["is"],
            margin=decision["margin"],
            against=decision["against"] or "",
            ours=ours,
            theirs=theirs,
            difference=decision["difference"],
            low=decision["low"],
            high=decision["high"],
            outcome=decision["outcome"],
            better=decision["better"],
        )

    @property
    def rival(self) -> str:
        """What ours is compared with: the other arm's name, or `than 0.5`."""
        return self.against or f"than {self.theirs:g}"

    @property
    def asked(self) -> str:
        """What was claimed, such as `higher by 0.01`, or `lower by 0 than 22`."""
        than = "" if self.against else f" {self.rival}"
        return f"{self.direction.replace('_', ' ')} by {self.margin:g}{than}"

    @property
    def told(self) -> str:
        """The figure: metric, difference, interval, values of both arms, what was asked."""
        interval = ""
        if self.low is not None and self.high is not None:
            interval = f" [{self.low:+.3g}, {self.high:+.3g}]"
        both = f"{self.ours:.4g}"
        if self.against:
            both += f" against {self.theirs:.4g} of {self.against}"
        return f"{self.metric} {self.difference:+.3g}{interval} ({both}), {self.asked}"

    @property
    def edges(self) -> list[float]:
        """Differences beyond which, or between which, the interval was said to lie."""
        worse = self.margin if self.better == "lower" else -self.margin
        return {
            "higher": [self.margin],
            "lower": [-self.margin],
            "not_worse": [worse],
            "equal": [-self.margin, self.margin],
        }[self.direction]

    def drawn(self) -> Mapping[str, Any]:
        """Place interval, mean, zero and what was asked on a line of 200 pixels."""
        low = self.difference if self.low is None else self.low
        high = self.difference if self.high is None else self.high
        reach = max(abs(each) for each in (low, high, *self.edges)) or 1.0
        half = _WIDTH / 2

        def across(value: float) -> float:
            return half + value / reach * (half - _INSET)

        return {
            "width": _WIDTH,
            "zero": half,
            "low": across(low),
            "high": across(high),
            "mean": across(self.difference),
            "edges": [across(each) for each in self.edges],
        }


@dataclass(frozen=True)
class ClaimRow:
    """A claim with all that is known of it."""

    family: str
    method: str
    claim: str
    says: str
    arena: str
    verdict: str = CLAIM_NOT_RUN
    """confirmed, refuted, undecided, void or not run."""
    stale: bool = False
    """What it rests on moved since."""
    sentence: str = ""
    figures: tuple[ClaimFigure, ...] = ()
    compared: tuple[str, ...] = ()
    """With what it is to be compared; `against` has what it was compared with once it was run."""
    seeds: int = 0
    minutes: float = 0.0
    commit: str | None = None
    """At which it was decided; None where the project's code was not committed."""
    rechecked: str | None = None
    """At which its first seed was run again; None where that was never asked for."""
    gone: tuple[str, ...] = ()
    """Of these two the commits that the project's history has not, and nobody can check out."""

    @property
    def against(self) -> str:
        """Name what ours is compared with, each once."""
        return ", ".join(dict.fromkeys([each.rival for each in self.figures] or self.compared))

    @property
    def was_run(self) -> bool:
        """Whether it came to a verdict, of whatever kind."""
        return self.verdict != CLAIM_NOT_RUN

    @property
    def told(self) -> tuple[str, ...]:
        """Each figure; of a verdict that was kept without them its sentence, which has them."""
        sentence = self.sentence.removeprefix(f"{self.verdict}: ")
        return tuple(each.told for each in self.figures) or (sentence,) * bool(sentence)

    @property
    def outcome(self) -> str:
        """The verdict, and what is to be known before it is relied on."""
        uncommitted = " (not committed)" if self.was_run and self.commit is None else ""
        return f"{self.verdict}{STALE * self.stale}{uncommitted}"

    def cells(self) -> tuple[str, ...]:
        """Fill the columns of `HEADING`."""
        return (
            self.family,
            self.method,
            self.claim,
            self.arena,
            self.against,
            "; ".join(self.told),
            self.outcome,
            str(self.seeds) if self.was_run else "",
            f"{self.minutes:.1f}" if self.was_run else "",
        )


def tally_of_claims(rows: Sequence[ClaimRow]) -> str:
    """Count claims by what became of them: `12 claims: 7 confirmed (5 count), 3 refuted, ...`.

    Where some of a word are stale, so many of it count.
    """
    counts = []
    for word in ("confirmed", "refuted", "undecided", "void", CLAIM_NOT_RUN):
        if of_it := [row for row in rows if row.verdict == word]:
            count = sum(not row.stale for row in of_it)
            still = f" ({count} still count)" if count < len(of_it) else ""
            counts.append(f"{len(of_it)} {word}{still}")
    stale = sum(row.stale for row in rows)
    told = f"{counted(len(rows), 'claim')}: {', '.join(counts)}"
    return told + (f"; {stale} of them stale" if stale else "")


def legend_of_claims(rows: Sequence[ClaimRow]) -> list[str]:
    """Say what the words mean that stand in a table of claims, a line each."""
    marked = ("stale",) * any(row.stale for row in rows)
    words = {*(row.verdict for row in rows), *marked}
    return [f"{word}: {meaning}" for word, meaning in MEANINGS.items() if word in words]


def claims_page(rows: Sequence[ClaimRow], families: Mapping[str, str]) -> str:
    """Lay claims out as one page of HTML.

    Args:
        rows: Every claim.
        families: Family -> what it is about, in the order of the page.

    Returns:
        The page, with everything in it.

    """
    grouped = {
        family: (about, of_it)
        for family, about in families.items()
        if (of_it := [row for row in rows if row.family == family])
    }
    said = {
        "families": grouped,
        "rows": rows,
        "tally": tally_of_claims(rows),
        "legend": legend_of_claims(rows),
        "heading": HEADING,
        "chart_style": chart_style(),
    }
    return str(template("claims.html").render(said))


def claims_in_markdown(rows: Iterable[ClaimRow]) -> str:
    """Write the claims that were run as a table in Markdown, a line each."""
    lines = [HEADING, ["---"] * len(HEADING), *(row.cells() for row in rows if row.was_run)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def verdicts(
    stages: Sequence[StageFacts], artifacts: Mapping[str, Path]
) -> list[Mapping[str, Any]]:
    """Read the verdicts that a run made, with their figures.

    Args:
        stages: Of the run.
        artifacts: `stage.output` -> where it lies.

    Returns:
        `sentence` and `figures` of each.

    """
    read = [read_json(each.path) for each in found(stages, artifacts, ArtifactKind.REPORT)]
    return [
        {"sentence": each["sentence"], "figures": [*map(ClaimFigure.read, each["decisions"])]}
        for each in read
        if "decisions" in each and "claim" in each
    ]
