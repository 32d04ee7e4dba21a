"""The layout of an evaluation report: one JSON file, drawn by the report page and the final table.

Top level is `Report`. Every rate is an `Estimate`: a mean over problems with a 95% interval that
treats a problem (not a sample) as the unit that was drawn, so that many samples of few problems
do not look like much evidence. Policies are in the order in which the recipe names them; each is
compared with the nearest of them that it was trained from (its `parent`), and where that is not
known with the one before it.

Everything is plain JSON: `json.loads(path.read_text())["policies"][-1]["pass_at"][0]["value"]` is
the last policy's pass@1.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

LAYOUT = 1


@dataclass(frozen=True)
class Estimate:
    """A mean over problems, and the ends of its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class EstimateAt:
    """An estimate that depends on a number of samples: pass@k, best-of-k, majority of k."""

    k: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Slice:
    """Some of the problems: one source, or one difficulty."""

    name: str
    num_problems: int
    pass_at_1: Estimate


@dataclass(frozen=True)
class Change:
    """One policy against its parent, on the same problems.

    `difference` is paired (per-problem pass@1 minus the parent's), so its interval is narrower
    than the two separate ones suggest. A problem counts as solved where at least half of its
    samples are right; the lists hold problem ids, sorted.
    """

    parent: str
    difference: Estimate
    newly_solved: tuple[str, ...]
    newly_lost: tuple[str, ...]
    by_source: tuple[Slice, ...]
    """Here `pass_at_1` is the paired difference within the source."""


@dataclass(frozen=True)
class EpisodesReport:
    """What the episodes of a policy were: means over all of them, with 95% intervals.

    `score` is of those that could be judged, None where none could; `tokens_read` are those behind
    the prompt. `facts` holds what the environment counted, such as `tool_errors`, `ends` the share
    of each way in which episodes ended: over, turns, tokens, time, failed.
    """

    score: Estimate | None
    turns: Estimate
    tokens_drawn: Estimate
    tokens_read: Estimate
    facts: dict[str, Estimate]
    ends: dict[str, Estimate]


@dataclass(frozen=True)
class PolicyReport:
    """What one policy can do.

    `pass_at` starts with k=1. `best_of` is empty without a reward model. `solve_histogram[c]`
    counts the problems of which c of the `num_samples` samples were right.
    `mean_length` is in tokens, the end token included; `truncation_rate` is the share of samples
    that met the token limit before they ended; `format_rate` the share that states an answer.
    """

    name: str
    digest: str
    pass_at: tuple[EstimateAt, ...]
    majority: EstimateAt
    best_of: tuple[EstimateAt, ...]
    mean_length: float
    truncation_rate: float
    format_rate: float
    by_source: tuple[Slice, ...]
    by_difficulty: tuple[Slice, ...]
    solve_histogram: tuple[int, ...]
    change: Change | None
    strategies: dict[str, tuple[EstimateAt, ...]] = field(default_factory=dict)
    """Estimates of the further strategies of the recipe, by kind; left out where there is none."""
    warnings: tuple[str, ...] = ()
    """What should be seen before the figures: that it guesses, or lost what its parent had."""
    variants: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    """Figures of the variants of the recipe, by their names; left out where there is none."""
    episodes: EpisodesReport | None = None
    """Where it played in an environment; left out where it answered."""


@dataclass(frozen=True)
class ShownTurn:
    """A message behind the prompt of an exhibit: one that the policy read, or a turn of its own.

    `earned` is what the environment paid for the turn, `key` that of the situation in which it was
    spoken; of a message that was read, both are empty.
    """

    author: str
    text: str
    earned: float | None
    key: str


@dataclass(frozen=True)
class ShownCompletion:
    """One policy's first sample of an exhibited problem, and how often it was right in all."""

    policy: str
    text: str
    score: float
    reason: str
    solve_rate: float
    turns: tuple[ShownTurn, ...] = ()
    """Of an episode of several turns, in order; left out where nothing answered."""
    end: str = ""
    """How it ended: over, turns, tokens, time, failed."""


@dataclass(frozen=True)
class Exhibit:
    """One problem with a completion of every policy, side by side."""

    problem_id: str
    source: str
    difficulty: int
    prompt: str
    answer: str
    completions: tuple[ShownCompletion, ...]


@dataclass(frozen=True)
class Report:
    """The whole of one evaluation."""

    layout: int
    seed: int
    num_problems: int
    num_samples: int
    temperature: float
    max_tokens: int
    reward_model: str | None
    """Digest of the reward model behind `best_of`, or None."""
    policies: tuple[PolicyReport, ...]
    exhibits: tuple[Exhibit, ...]


def write_report(report: Report, path: Path) -> None:
    """Write the report as JSON with sorted keys: equal reports are equal bytes."""
    written = asdict(report)
    for policy in written["policies"]:
        if not policy["strategies"]:
            del policy["strategies"]
        if not policy["variants"]:
            del policy["variants"]
        if policy["episodes"] is None:
            del policy["episodes"]
    for shown in (each for exhibit in written["exhibits"] for each in exhibit["completions"]):
        if not shown["turns"]:
            del shown["turns"], shown["end"]
    path.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_report(path: Path) -> Report:
    """Read back what `write_report` wrote, checked against the layout."""
    return TypeAdapter(Report).validate_json(path.read_text(encoding="utf-8"))
