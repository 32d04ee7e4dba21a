"""Two questions of the field as claims of the catalog measure them here, with their pictures.

    posttrain method run large_k
    posttrain method run forking_tokens
    python -m benchmarks.questions

Reads what those two commands left under .posttrain/claims, runs nothing itself, and writes
figures.json, the tables of README.md, sharpens.svg and fifth.svg here; with the name of a question,
that one alone anew. What counts as an answer was stated in the methods' files before their arms
were run.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.questions.picture import by_tokens, pass_at_k
from posttrain.learning.maths.decision import paired_interval
from posttrain.methods.claim import FIRST_TRIAL
from posttrain.pipeline.verdicts import kept_verdicts

HERE = Path(__file__).parent
CLAIMS = HERE.parents[1] / ".posttrain/claims"
FIGURES, PAGE = HERE / "figures.json", HERE / "README.md"
SHARPENS, FIFTH = HERE / "sharpens.svg", HERE / "fifth.svg"
_BEGIN, _END = "<!-- figures -->", "<!-- end of figures -->"
_TOKENS = {
    "all tokens": ("a_fifth_suffices", "all"),
    "the top fifth": ("a_fifth_suffices", "forking_tokens"),
    "the other four": ("the_rest_alone_is_worse", "rest"),
}
"""What is drawn: the claim whose arms have it, and the arm."""


def drawn_curves(claim: str, policies: Sequence[str]) -> dict[str, Any]:
    """Read pass@k of each run, from the diagnostic that compares the curves.

    Args:
        claim: `method.claim`, which has been run.
        policies: Names of policies.

    Returns:
        `k`: numbers of samples; `pass_at`: by policy and run, pass@k at each.

    Raises:
        SystemExit: The claim has not been run here.

    """
    curves: dict[str, list[list[float]]] = {name: [] for name in policies}
    ks: list[int] = []
    for report in _reports(claim, "diagnose"):
        lines = {each["name"]: each for each in report["diagnostics"]["crossing"]["lines"]}
        ks = [int(k) for k in lines[policies[0]]["x"]]
        for name in policies:
            curves[name].append([round(value, 5) for value in lines[name]["y"]])
    return {"k": ks, "pass_at": curves}


def solved_first(claim: str, policy: str) -> list[float]:
    """Read pass@1 of a policy in each run of a claim."""
    found = []
    for report in _reports(claim, "evaluate"):
        known = {each["name"]: each for each in report["policies"]}
        found.append(round(known[policy]["pass_at"][0]["value"], 5))
    return found


def _reports(claim: str, stage: str) -> Iterator[dict[str, Any]]:
    # A trial leaves its runs beside those of the verdict.
    folders = {
        int(each.name.rpartition("_")[2]): each
        for each in (CLAIMS / claim / "data").glob(f"{stage}_*")
    }
    runs = sorted(number for number in folders if number < FIRST_TRIAL)
    if not runs:
        raise SystemExit(
            f"there is no run of {claim} here: posttrain method run {claim.partition('.')[0]}"
        )
    for number in runs:
        found = sorted(folders[number].glob("report*.json"))
        if not found:
            raise SystemExit(f"run {number} of {claim} is not over: run it once more")
        yield json.loads(found[0].read_text())


def span(runs: Sequence[float]) -> list[float]:
    """Return the mean over runs and the ends of its 95% interval."""
    return [round(float(each), 5) for each in paired_interval(torch.tensor(runs))]


def crossing(ks: Sequence[int], after: Sequence[Sequence[float]], before: Sequence[Sequence[float]]
             ) -> list[int]:  # fmt: skip
    """Find where pass@k of a policy falls to that of its start.

    Args:
        ks: Numbers of samples, rising.
        after: By run, pass@k of the policy.
        before: By run, pass@k of its start.

    Returns:
        The first k at which the mean is not ahead any more; the first at which its interval over
        the runs holds 0; the first from which it is behind for certain. Each is twice the last k
        where there is none.

    """
    gaps = [
        span([ours[place] - theirs[place] for ours, theirs in zip(after, before, strict=True)])
        for place in range(len(ks))
    ]
    beyond = 2 * ks[-1]
    return [
        next((k for k, gap in zip(ks, gaps, strict=True) if gap[end] <= 0), beyond)
        for end in (0, 1, 2)
    ]


def measured(names: Sequence[str], kept: Mapping[str, Any]) -> dict[str, Any]:
    """Gather the figures of questions from the runs of their claims.

    Args:
        names: The questions.
        kept: Figures of the others.

    Returns:
        Figures by question, and the verdicts of all their claims.

    """
    figures = {**kept, **{name: QUESTIONS[name]() for name in names}}
    figures["verdicts"] = {
        claim: f"{known.sentence}; {known.seeds} runs, {known.minutes:.0f} min"
        for (method, claim), known in kept_verdicts().items()
        if method in ("large_k", "forking_tokens")
    }
    return figures


def _sharpens() -> dict[str, Any]:
    curves = drawn_curves("large_k.only_sharpens", ("large_k", "sft"))
    after, before = (curves["pass_at"][name] for name in ("large_k", "sft"))
    return {**curves, "crossing": crossing(curves["k"], after, before)}


def _fifth() -> dict[str, Any]:
    found = {"start": solved_first("forking_tokens.a_fifth_suffices", "sft")}
    for name, (claim, arm) in _TOKENS.items():
        found[name] = solved_first(f"forking_tokens.{claim}", arm)
    return found


QUESTIONS = {"sharpens": _sharpens, "fifth": _fifth}
"""What each question's figures are made of."""


def lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """Write both tables and the verdicts."""
    one, two, said = figures["sharpens"], figures["fifth"], figures["verdicts"]
    ks, curves = one["k"], one["pass_at"]
    yield f"| k | {' | '.join(map(str, ks))} |"
    yield "|---" * (len(ks) + 1) + "|"
    for told, name in (("before RL", "sft"), ("after RL", "large_k")):
        cells = [_percent(span(each)) for each in zip(*curves[name], strict=True)]
        yield f"| {told} | {' | '.join(cells)} |"
    pairs = [*zip(curves["large_k"], curves["sft"], strict=True)]
    gaps = [span([ours[at] - theirs[at] for ours, theirs in pairs]) for at in range(len(ks))]
    yield f"| difference | {' | '.join(_percent(gap, sign='+') for gap in gaps)} |"
    yield ""
    met, low, high = one["crossing"]
    end = f"{high}" if high <= ks[-1] else f"beyond {ks[-1]}"
    yield f"They cross at k = {met}, between {low} and {end} by the interval over the runs."
    yield ""
    for claim in ("sharpens", "only_sharpens"):
        yield f"- `large_k.{claim}`: {said[claim]}."
    yield ""
    yield "| learned from | pass@1 | runs |"
    yield "|---|---|---|"
    for name, runs in two.items():
        told = "nothing yet (before RL)" if name == "start" else name
        yield f"| {told} | {_percent(span(runs))} | {', '.join(f'{100 * v:.1f}' for v in runs)} |"
    yield ""
    for claim in ("a_fifth_suffices", "the_rest_alone_is_worse"):
        yield f"- `forking_tokens.{claim}`: {said[claim]}."


def _percent(interval: Sequence[float], *, sign: str = "") -> str:
    value, low, high = (100 * each for each in interval)
    return f"{value:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]"


def write(figures: Mapping[str, Any]) -> None:
    """Write figures, tables and pictures."""
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    before, rest = PAGE.read_text().split(_BEGIN)
    after = rest.split(_END)[1]
    table = "\n".join(lines(figures))
    PAGE.write_text(f"{before}{_BEGIN}\n{table}\n{_END}{after}")
    one, two = figures["sharpens"], figures["fifth"]
    curves = {
        told: [span(each) for each in zip(*one["pass_at"][name], strict=True)]
        for told, name in (("before RL", "sft"), ("after RL", "large_k"))
    }
    SHARPENS.write_text(pass_at_k(one["k"], curves, one["crossing"]))
    arms = {name: two[name] for name in _TOKENS}
    means = {name: span(runs) for name, runs in arms.items()}
    FIFTH.write_text(by_tokens(span(two["start"]), arms, means))


def main() -> None:
    """Gather the figures, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "questions", nargs="*", choices=[*QUESTIONS, []], help="Those to measure anew; all."
    )
    parser.add_argument(
        "--draw", action="store_true", help="Tables and pictures of the kept figures alone."
    )
    asked = parser.parse_args()
    kept = json.loads(FIGURES.read_text())
    write(kept if asked.draw else measured(asked.questions or [*QUESTIONS], kept))


if __name__ == "__main__":
    main()
