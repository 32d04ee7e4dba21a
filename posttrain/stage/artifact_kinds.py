"""Kinds of artifacts; apart from the specification, so that asking for them loads nothing else."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

Shape = Literal["table", "model", "models", "report", "file", "part", "verifier"]
"""How a kind is checked when it is written, and drawn in a graph.

A table is a parquet file with a schema, a model a directory with weights, a report JSON. A part or
a verifier is never on a port: an artifact of another kind carries it inside.
"""

_LEAST_PUBLIC = 9

# Kinds that this process has met with more than a name, those of imported tasks among them.
_declared: "dict[str, ArtifactKind]" = {}


class ArtifactKind(str):
    """What the bytes of an artifact mean; an edge may only join ports of one kind.

    A kind is its name, as ledgers and releases keep it, with what is known of such artifacts. A
    task of one's own may have a kind of its own: `Port(ArtifactKind("rubrics", ...), "...")`.

    >>> kind = ArtifactKind("rubrics", suffix=".parquet", shape="table")
    >>> kind == "rubrics", kind.suffix, kind.is_directory
    (True, '.parquet', False)
    """

    PROBLEMS: ClassVar["ArtifactKind"]
    COMPLETIONS: ClassVar["ArtifactKind"]
    SOLVE_RATES: ClassVar["ArtifactKind"]
    PAIRS: ClassVar["ArtifactKind"]
    ROLLOUTS: ClassVar["ArtifactKind"]
    VERDICTS: ClassVar["ArtifactKind"]
    CURVE: ClassVar["ArtifactKind"]
    DROPPED: ClassVar["ArtifactKind"]
    CHECKPOINT: ClassVar["ArtifactKind"]
    REWARD_MODEL: ClassVar["ArtifactKind"]
    REPORT: ClassVar["ArtifactKind"]
    SOURCE: ClassVar["ArtifactKind"]
    TOKENIZER: ClassVar["ArtifactKind"]
    TEMPLATE: ClassVar["ArtifactKind"]
    VERIFIER: ClassVar["ArtifactKind"]
    VERIFIERS: ClassVar["ArtifactKind"]

    suffix: str
    """File suffix of such an artifact; directories and foreign files have none."""
    shape: Shape
    """How it is checked and drawn."""
    schema: Callable[[], Any] | None
    """Gives the polars schema of a table that does not ship with posttrain."""
    rank: int
    """How far outside a mistake in it is seen, 1 the farthest: models, then reports, then data."""

    def __new__(
        cls,
        name: str,
        *,
        suffix: str = "",
        shape: Shape = "file",
        schema: Callable[[], Any] | None = None,
        rank: int = _LEAST_PUBLIC,
    ) -> "ArtifactKind":
        """Name a kind.

        Args:
            name: What ledgers call it.
            suffix: File suffix.
            shape: How it is checked and drawn.
            schema: Returns the polars schema of a table; needed for one of a kind of one's own.
            rank: How far outside a mistake in it is seen, 1 the farthest.

        Returns:
            The kind; of a name alone the one that was declared, where there is one.

        Raises:
            ValueError: Another kind of that name was declared, and it says otherwise.

        """
        kind = super().__new__(cls, name)
        kind.suffix, kind.shape, kind.schema, kind.rank = suffix, shape, schema, rank
        if _properties(kind) == ("", "file", None, _LEAST_PUBLIC):
            return _declared.get(name, kind)
        known = _declared.setdefault(name, kind)
        if _properties(known) != _properties(kind):
            raise ValueError(
                f"there is an artifact kind '{name}' already: {_described(known)}, not"
                f" {_described(kind)}; give yours another name"
            )
        return kind

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep everything when it is sent to a stage's process."""
        return _made, (str(self), self.suffix, self.shape, self.schema, self.rank)

    @property
    def is_directory(self) -> bool:
        """True where the artifact is a directory rather than one file."""
        return self.shape in ("model", "models")

    @property
    def is_inside(self) -> bool:
        """True where an artifact of another kind carries it inside, so that no port has it."""
        return self.shape in ("part", "verifier")


def _properties(kind: ArtifactKind) -> tuple[object, ...]:
    # A module that is imported anew has new functions: theirs are the same by name.
    schema = kind.schema and (kind.schema.__module__, kind.schema.__qualname__)
    return kind.suffix, kind.shape, schema, kind.rank


def _described(kind: ArtifactKind) -> str:
    suffix, shape, schema, rank = _properties(kind)
    by = ".".join(schema) if isinstance(schema, tuple) else None
    return f"suffix {suffix!r}, shape {shape!r}, schema {by}, rank {rank}"


def _made(
    name: str, suffix: str, shape: Shape, schema: Callable[[], Any] | None, rank: int
) -> ArtifactKind:
    return ArtifactKind(name, suffix=suffix, shape=shape, schema=schema, rank=rank)


ArtifactKind.PROBLEMS = ArtifactKind("problems", suffix=".parquet", shape="table")
ArtifactKind.COMPLETIONS = ArtifactKind("completions", suffix=".parquet", shape="table")
ArtifactKind.SOLVE_RATES = ArtifactKind("solve_rates", suffix=".parquet", shape="table")
ArtifactKind.PAIRS = ArtifactKind("pairs", suffix=".parquet", shape="table")
ArtifactKind.ROLLOUTS = ArtifactKind("rollouts", suffix=".parquet", shape="table")
ArtifactKind.VERDICTS = ArtifactKind("verdicts", suffix=".parquet", shape="table")
ArtifactKind.CURVE = ArtifactKind("curve", suffix=".parquet", shape="table")
ArtifactKind.DROPPED = ArtifactKind("dropped", suffix=".parquet", shape="table")
ArtifactKind.CHECKPOINT = ArtifactKind("checkpoint", shape="model", rank=1)
ArtifactKind.REWARD_MODEL = ArtifactKind("reward_model", shape="model", rank=2)
ArtifactKind.REPORT = ArtifactKind("report", suffix=".json", shape="report", rank=3)
ArtifactKind.SOURCE = ArtifactKind("source")
ArtifactKind.TOKENIZER = ArtifactKind("tokenizer", shape="part")
ArtifactKind.TEMPLATE = ArtifactKind("template", shape="part")
ArtifactKind.VERIFIER = ArtifactKind("verifier", shape="verifier")
ArtifactKind.VERIFIERS = ArtifactKind("verifiers", suffix=".json", shape="report")

ARTIFACT_KINDS: Mapping[str, ArtifactKind] = {
    str(kind): kind for kind in vars(ArtifactKind).values() if isinstance(kind, ArtifactKind)
}
"""The kinds that ship with posttrain, by name."""


def kind_named(name: str) -> ArtifactKind:
    """Return the kind that a ledger names.

    Args:
        name: Its name.

    Returns:
        The kind. Of one that does not ship, and whose task is not imported, only the name is known.

    """
    return ARTIFACT_KINDS.get(name) or _declared.get(name) or ArtifactKind(name)
