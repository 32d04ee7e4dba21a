"""The published systems that a method may be of, and how much of each runs here.

`systems.tsv` holds facts about each: its family, whether it is run itself (A) or gave an idea (B),
whether the original sees images, audio or a robot, whether a part of its own runs here without a
file of its own, and the blocks that it still lacks; `blocks.tsv` says what a block is.
"""

import csv
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from posttrain.methods.find import FoundMethod
from posttrain.methods.method import Method
from posttrain.stage.errors import UserError, nearest

State = Literal["y", "text", "p", "-"]
COLUMNS = ("system", "family", "kind", "state", "file", "claims", "missing")
DECIDED = ("confirmed", "refuted")
"""Verdicts that settle a claim, either way."""

_HERE = Path(__file__).parent


class PublishedSystem(NamedTuple):
    """A system of the literature, as `systems.tsv` has it."""

    name: str
    family: str
    kind: str
    """A: run here, in miniature; B: one idea of it is taken over."""
    sees: bool
    """True where the original sees images, audio or a robot."""
    in_part: bool
    """True where a part of its own runs without a method's file."""
    lacks: tuple[str, ...]
    """Blocks that it needs and that are not here."""


class ListedSystem(NamedTuple):
    """A line of the list: a system, and what stands for it here."""

    system: str
    family: str
    kind: str
    state: State
    file: str
    claims: str
    missing: str


@cache
def published_systems() -> tuple[PublishedSystem, ...]:
    """Read all systems, in the order of their families."""
    return tuple(
        PublishedSystem(
            row["system"],
            row["family"],
            row["kind"],
            row["original"] == "sees",
            row["parts"] == "p",
            tuple(row["missing"].split()),
        )
        for row in _rows("systems.tsv")
    )


@cache
def blocks() -> dict[str, str]:
    """Read what each block is, by its name."""
    return {row["block"]: row["what"] for row in _rows("blocks.tsv")}


def refuse_unknown_system(found: FoundMethod) -> None:
    """Refuse a method of a system that is none of the list.

    Args:
        found: The method.

    Raises:
        UserError: There is no system of that name.

    """
    names = [each.name for each in published_systems()]
    if found.method.system and found.method.system not in names:
        hint = nearest(found.method.system, names) or "; posttrain method list names them all"
        raise UserError(f"{found.shown}: system: there is no '{found.method.system}'{hint}")


def listed_systems(
    methods: Sequence[FoundMethod],
    verdicts: Mapping[tuple[str, str], str],
    passed: Container[str],
) -> list[ListedSystem]:
    """List every system with what stands for it here.

    Args:
        methods: Those whose files resolve.
        verdicts: Verdict of each claim that was run on today's digests, by method and claim.
        passed: Names of the methods that passed `posttrain method check` as they are today.

    Returns:
        A line for each system: `y` where it lacks no block and a method of it passed its check,
        which for a system of kind A is the method itself and no idea of it; `text` where that
        holds and the original sees, `p` where some of it runs, else `-`. What became of its
        claims stands beside it: a claim that is refuted is of a method that runs.

    """
    listed = []
    for each in published_systems():
        ours = [found for found in methods if found.method.system == each.name]
        told = [claims_told(found.method, verdicts) for found in ours]
        lacking = [*_lacking(each, ours, passed)]
        whole: State = "text" if each.sees else "y"
        state: State = whole if not lacking else "p" if ours or each.in_part else "-"
        listed.append(
            ListedSystem(
                each.name,
                each.family,
                each.kind,
                state,
                " ".join(found.shown for found in ours),
                "; ".join(filter(None, told)),
                "; ".join(lacking),
            )
        )
    return listed


def claims_told(method: Method, verdicts: Mapping[tuple[str, str], str]) -> str:
    """Say of each claim of a method what became of it, such as `dler.shorter not run`."""
    return "; ".join(
        f"{method.name}.{claim.name} {verdicts.get((method.name, claim.name), 'not run')}"
        for claim in method.claims
    )


def _lacking(
    system: PublishedSystem, ours: Sequence[FoundMethod], passed: Container[str]
) -> Iterator[str]:
    """Say what is missing until a system runs: blocks, its file, a check that it passed."""
    yield from (blocks()[name] for name in system.lacks)
    whole = [each.method for each in ours if system.kind == "B" or each.method.kind == "run"]
    if not ours:
        yield "a method's file"
    elif not whole:
        yield "the method itself: its file has one idea of it"
    elif not any(each.name in passed for each in whole):
        yield f"a check that it passed (posttrain method check {whole[0].name})"


def _rows(name: str) -> list[dict[str, str]]:
    with (_HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
