"""What stays and what goes: pure functions over nodes with bytes and reasons."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ByteSize, Field, TypeAdapter, ValidationError

from posttrain.stage.errors import UserError

RemovableKind = Literal[
    "artifact", "rollouts", "checkpoint", "staging", "run cache", "mlflow", "prefect", "requests"
]

UNUSED = "nothing names it"
FITS = "fits the budget"
_SIZE = TypeAdapter(Annotated[ByteSize, Field(ge=0)])


@dataclass(frozen=True)
class StoredItem:
    """Something that can be kept or removed as a whole.

    `parts` are its pieces with their bytes; nodes may share pieces. `used` is when it was last
    needed (UTC epoch seconds). It stays if it has a reason to.
    """

    name: str
    kind: RemovableKind
    parts: Mapping[str, int]
    used: float = 0.0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class RemovalDecision:
    """Every node with why it stays, or why it goes; pieces that go are needed by none that stay."""

    kept: tuple[tuple[StoredItem, str], ...]
    removed: tuple[StoredItem, ...]
    pieces: frozenset[str]
    freed: int
    left: int


@dataclass(frozen=True)
class SummaryLine:
    """One line of the table: what happens to a kind, why, how many nodes, how many bytes."""

    goes: bool
    kind: str
    reason: str
    count: int
    size: int


def decide(nodes: Sequence[StoredItem], budget: int | None = None) -> RemovalDecision:
    """Keep every node with a reason; of the others remove all, or the longest unused first.

    With a `budget` in bytes only so many go that what is left fits, if it can.
    """
    sizes = {piece: size for node in nodes for piece, size in node.parts.items()}
    users = Counter(piece for node in nodes for piece in node.parts)
    left = sum(sizes.values())
    removed: list[StoredItem] = []
    gone: set[str] = set()
    for node in sorted((n for n in nodes if not n.reasons), key=lambda n: (n.used, n.name)):
        if budget is not None and left <= budget:
            break
        removed.append(node)
        for piece in node.parts:
            users[piece] -= 1
            if users[piece] == 0:
                gone.add(piece)
                left -= sizes[piece]
    names = {id(node) for node in removed}
    kept = tuple(
        (node, node.reasons[0] if node.reasons else FITS) for node in nodes if id(node) not in names
    )
    freed = sum(sizes[piece] for piece in gone)
    return RemovalDecision(kept, tuple(removed), frozenset(gone), freed, left)


def table(decision: RemovalDecision) -> list[SummaryLine]:
    """Bytes by reason and kind, what goes last; a piece counts at the first node that has it."""
    seen: set[str] = set()
    lines: dict[tuple[bool, str, str], tuple[int, int]] = {}
    rows = [(False, node, reason) for node, reason in decision.kept]
    rows += [(True, node, UNUSED) for node in decision.removed]
    for goes, node, reason in rows:
        size = _counted(node, seen, decision.pieces if goes else None)
        count, total = lines.get((goes, reason, node.kind), (0, 0))
        lines[(goes, reason, node.kind)] = (count + 1, total + size)
    ordered = sorted(lines.items(), key=lambda item: (item[0][0], item[0][1], item[0][2]))
    return [SummaryLine(goes, kind, why, *counts) for (goes, why, kind), counts in ordered]


def _counted(node: StoredItem, seen: set[str], among: Collection[str] | None) -> int:
    """Bytes of the pieces that no line has counted yet."""
    new = [p for p in node.parts if p not in seen and (among is None or p in among)]
    seen.update(new)
    return sum(node.parts[piece] for piece in new)


def parse_bytes(text: str) -> int:
    """Read an amount of bytes as people write it: `50GB`, `1.5 TB`, `800MiB` or a number."""
    try:
        return int(_SIZE.validate_python(text.strip()))
    except ValidationError:
        raise UserError(
            f"'{text}' is no amount of bytes; write it as 50GB, 800MB or 1.5TB"
        ) from None
