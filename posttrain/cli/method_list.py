"""`posttrain method list`: published systems with their state, and the base methods beside them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.markup import escape

from posttrain.cli.options import plain_table
from posttrain.methods.find import FoundMethod, readable_methods
from posttrain.methods.method import FAMILIES
from posttrain.methods.systems import COLUMNS, ListedSystem, claims_told, listed_systems
from posttrain.pipeline.method_checks import passed_checks, stale_checks, standing_checks
from posttrain.pipeline.method_files import look_up_methods
from posttrain.pipeline.verdicts import standing_verdicts
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import counted


@dataclass(frozen=True)
class Listed:
    """What is listed, and what is known of it."""

    systems: Sequence[ListedSystem]
    base: Sequence[FoundMethod]
    """Methods that are no published system."""
    verdicts: Mapping[tuple[str, str], str]
    """By method and claim."""
    stale: frozenset[str]
    """Methods with a check that counts for nothing by now."""
    faults: Sequence[UserError]
    """Of the files that are wrong."""

    @classmethod
    def of(cls, root: Path, *, family: str | None, state: str | None) -> Self:
        """Look at all methods of a project.

        Args:
            root: The project.
            family: Of one family alone; None for all.
            state: Systems in one state alone, and no base methods; None for all.

        Returns:
            All that is to be listed.

        """
        readable, faults = readable_methods()
        methods, wrong = look_up_methods([*readable.values()], root)
        verdicts, checks = standing_verdicts(methods, root), standing_checks(methods, root)
        systems = [
            each
            for each in listed_systems(methods, verdicts, passed_checks(checks))
            if family in (None, each.family) and state in (None, each.state)
        ]
        base = [] if state else [each for each in methods if not each.method.system]
        base = [each for each in base if family in (None, each.method.family)]
        return cls(systems, base, verdicts, stale_checks(checks), [*faults, *wrong])

    def rows(self) -> Iterator[Sequence[str]]:
        """Give a row for each system, behind the heading."""
        yield COLUMNS
        yield from self.systems

    def print(self) -> None:
        """Print a table for each family, and count what there is."""
        console = Console(highlight=False)
        for family, about in FAMILIES.items():
            of_systems = [each for each in self.systems if each.family == family]
            of_base = [each.method for each in self.base if each.method.family == family]
            if not of_systems and not of_base:
                continue
            console.print(f"[bold]{family}[/]  {about}")
            table = plain_table("state", "method", "what", unbroken=("state", "method"))
            for known in of_base:
                claims, checks = claims_told(known, self.verdicts), self._stale_told([known.name])
                beside = "; ".join(filter(None, (claims, checks)))
                what = f"{escape(known.says)}  [dim]{escape(beside)}[/]"
                table.add_row("", f"[bold]{known.name}[/]", what.removesuffix("  [dim][/]"))
            for each in of_systems:
                files = [Path(file).stem for file in each.file.split()]
                names = "\n".join(files)
                lacks = f"lacks {each.missing}" if each.missing else ""
                beside = "; ".join(filter(None, (each.claims or lacks, self._stale_told(files))))
                what = f"{escape(each.system)}  [dim]{escape(beside)}[/]"
                table.add_row(each.state, f"[bold]{names}[/]", what)
            console.print(table)
            console.print()
        states = [each.state for each in self.systems]
        counts = ", ".join(f"{states.count(state)} {state}" for state in ("y", "text", "p", "-"))
        told = counted(len(self.systems), "published system")
        console.print(f"{told}: {counts}; {counted(len(self.base), 'base method')}")

    def _stale_told(self, names: Sequence[str]) -> str:
        """Say of which methods a check is stale; `posttrain method show` says which."""
        stale = ", ".join(name for name in names if name in self.stale)
        return f"stale check of {stale}" if stale else ""
