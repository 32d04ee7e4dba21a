"""The samples of evaluations, as tables of problems by samples, policy by policy."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.learning.rollouts.diagnostics.base import Seen
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    import polars as pl
    from torch import Tensor


@dataclass(frozen=True)
class PolicySamples:
    """What one policy wrote, `N` samples of each of `P` problems, those of all policies alike.

    Attributes:
        problems: Ids of the problems, sorted.
        difficulties: Of each problem.
        texts: Texts of each problem.
        correct_PN: 1 where a sample was accepted in full, else 0; float64 ``[P, N]``.
        scores_PN: Scores in [0, 1], float64 ``[P, N]``.
        prompts: Of each problem, with what stands around it.

    """

    problems: tuple[str, ...]
    difficulties: tuple[int, ...]
    texts: tuple[tuple[str, ...], ...]
    correct_PN: "Tensor"
    scores_PN: "Tensor"
    prompts: tuple[tuple[str, str], ...]


def samples_by_policy(seen: Seen) -> dict[str, PolicySamples]:
    """Read the samples of every evaluated policy, of the problems that all were judged on.

    Args:
        seen: Its reports name the policies, and its completions hold what they wrote.

    Returns:
        By the policies' names, in the order of the reports.

    Raises:
        UserError: A report has no samples, two name one policy, or no problem is judged whole.

    """
    frames: dict[str, Any] = {}
    for name, path in seen.reports.items():
        if name not in seen.completions:
            raise UserError(
                f"diagnose.inputs: the report '{name}' has no completions of that name; connect"
                f" completions.{name}"
            )
        frames |= _by_policy(frames, path, seen.completions[name])
    if not frames:
        raise UserError(
            "diagnose.inputs: no evaluation is connected; connect reports and completions of one"
        )
    kept = set.intersection(*(_whole(frame) for frame in frames.values()))
    if not kept:
        raise UserError("diagnose: no problem has samples of every policy that all were judged")
    return {name: _arranged(frame, sorted(kept), name) for name, frame in frames.items()}


def _by_policy(known: dict[str, Any], report: Path, completions: Path) -> dict[str, Any]:
    import polars as pl

    from posttrain.data.schemas import COMPLETIONS
    from posttrain.data.tables import read_table

    table = read_table(completions, COMPLETIONS)
    found = {}
    for policy in json.loads(report.read_text(encoding="utf-8"))["policies"]:
        name = policy["name"]
        if name in known:
            raise UserError(
                f"diagnose.inputs.reports: two evaluations have a policy '{name}'; rename one"
            )
        found[name] = table.filter(pl.col("generator") == policy["digest"])
    return found


def _whole(frame: "pl.DataFrame") -> set[str]:
    """Ids of the problems of which every sample was judged."""
    left = frame.filter(frame["verified"].is_null())["problem_id"]
    return set(frame["problem_id"]) - set(left)


def _arranged(frame: "pl.DataFrame", problems: list[str], name: str) -> PolicySamples:
    import torch

    groups = dict(frame.group_by("problem_id", maintain_order=True))
    ordered = [groups[(problem,)] for problem in problems]
    sizes = {len(group) for group in ordered}
    if len(sizes) > 1:
        raise UserError(
            f"diagnose: '{name}' has from {min(sizes)} to {max(sizes)} samples of a problem;"
            " connect an evaluation of one policy under one name"
        )
    return PolicySamples(
        tuple(problems),
        tuple(int(group["difficulty"][0]) for group in ordered),
        tuple(tuple(group["text"]) for group in ordered),
        torch.tensor([group["verified"].to_list() for group in ordered], dtype=torch.float64),
        torch.tensor([group["score"].to_list() for group in ordered], dtype=torch.float64),
        tuple((group["prompt"][0], group["context"][0]) for group in ordered),
    )


def reference_samples(seen: Seen, found: dict[str, PolicySamples]) -> PolicySamples:
    """Give the samples of the policy that others are compared with.

    Args:
        seen: Names it.
        found: Of `samples_by_policy`.

    Returns:
        Its samples.

    Raises:
        UserError: It was not evaluated.

    """
    if seen.reference not in found:
        raise UserError(
            f"diagnose.reference: '{seen.reference}' was not evaluated; there are"
            f" {', '.join(found)}"
        )
    return found[seen.reference]
