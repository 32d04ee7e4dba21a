"""The slot of the diagnostics: what a part of it looks at, and what it says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.stage.errors import UserError
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


@dataclass(frozen=True)
class Seen:
    """The artifacts that a diagnostic looks at, by the names under which they are connected.

    Attributes:
        policies: Checkpoints.
        repeats: The same policies as another seed trained them.
        reward_models: Reward models.
        reports: Evaluations; each has its samples under the same name in `completions`.
        completions: Samples of an evaluation.
        rollouts: What RL learned from.
        curves: What training measured.
        problems: Problems; None where none are connected.
        verifiers: What scores those that name no verifier; None where none are connected.
        reference: The policy that all others are compared with.
        seed: Where all chance comes from.
        device: Where models compute.

    """

    policies: Mapping[str, Path] = field(default_factory=dict)
    repeats: Mapping[str, Path] = field(default_factory=dict)
    reward_models: Mapping[str, Path] = field(default_factory=dict)
    reports: Mapping[str, Path] = field(default_factory=dict)
    completions: Mapping[str, Path] = field(default_factory=dict)
    rollouts: Mapping[str, Path] = field(default_factory=dict)
    curves: Mapping[str, Path] = field(default_factory=dict)
    problems: Path | None = None
    verifiers: Path | None = None
    reference: str = ""
    seed: int = 0
    device: str = "cpu"

    def compared(self, named: Mapping[str, Path]) -> Path:
        """Give the reference among some artifacts.

        Args:
            named: Those of one port.

        Returns:
            Its path.

        Raises:
            UserError: It is not among them.

        """
        if self.reference not in named:
            raise UserError(
                f"diagnose.reference: '{self.reference}' is none of what is connected; there are"
                f" {', '.join(named)}"
            )
        return named[self.reference]

    def scored_problems(self) -> "list[Problem]":
        """Read the problems, each with the verifier that scores its answers.

        Returns:
            The problems, in their order.

        Raises:
            UserError: None are connected, or what scores them is not.

        """
        from posttrain.data.source_verifiers import read_scored_problems
        from posttrain.learning.rollouts.scoring import problems_of

        if self.problems is None:
            raise UserError("diagnose.inputs.problems: no problems are connected; connect some")
        return problems_of(read_scored_problems(self.problems, self.verifiers))


@dataclass(frozen=True)
class DrawnLine:
    """A curve of a picture.

    Attributes:
        name: What it is of.
        x: Where its points are, rising.
        y: Their heights.
        low: Lower ends of their 95% intervals; none where there is no interval.
        high: Upper ends.

    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Diagnosis:
    """What a diagnostic says.

    Attributes:
        figures: Numbers by what they are of, such as a policy, and by name; what could not be
            measured is left out.
        lines: What a picture of it draws.
        axes: What stands below and beside the picture.
        doubling: True where a step to the right doubles.
        lists: Ids of rows by what they have in common.

    """

    figures: Mapping[str, Mapping[str, float]]
    lines: Sequence[DrawnLine] = ()
    axes: tuple[str, str] = ("", "")
    doubling: bool = False
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Diagnostic(Part):
    """Measures what stages made.

    `NEEDS` names the attributes of `Seen` that it reads and cannot do without.
    """

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Measure.

        Args:
            seen: What is connected.

        Returns:
            Figures, and what a picture draws.

        Raises:
            UserError: Nothing can be measured of what is connected.

        """
        raise NotImplementedError


def values_by_step(path: Path, metric: str) -> dict[int, float]:
    """Read a metric of a curve.

    Args:
        path: The CURVE.
        metric: Full name.

    Returns:
        Its value by step, in their order; empty where it was not measured.

    """
    import polars as pl

    from posttrain.data.schemas import CURVE
    from posttrain.data.tables import read_table

    rows = read_table(path, CURVE).filter(pl.col("metric") == metric).sort("step")
    return dict(rows.select("step", "value").iter_rows())
