"""The tables, in SQLAlchemy Core: what a fresh ledger is created from, and Alembic's target.

Everything repeated is stored once: a stage that is found up to date a thousand times adds a
thousand rows to `stage_runs` and none to `edges`, and edges are integers only, so that a walk
over a million of them stays in cache.
"""

from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import BigInteger, TypeEngine

METADATA = MetaData()
# SQLite numbers rows by itself only where the type is spelled INTEGER.
_NUM = BigInteger().with_variant(Integer, "sqlite")


def _num() -> "Column[int]":
    return Column("num", _NUM, primary_key=True, autoincrement=True)


def _required(kind: "type[TypeEngine[Any]] | TypeEngine[Any]", *names: str) -> "list[Column[Any]]":
    return [Column(name, kind, nullable=False) for name in names]


RUNS = Table(
    "runs",
    METADATA,
    _num(),
    Column("id", String, nullable=False, unique=True),
    Column("recipe", String, nullable=False),
    Column("started", Float(53), nullable=False),
    Column("ended", Float(53)),
    Column("status", String, nullable=False),
    Column("git_commit", String),
    Column("git_dirty", Boolean, nullable=False),
    Column("command", Text, nullable=False),
    Column("mlflow_run_id", String),
    Column("prefect_run_id", String),
    Column("overrides", Text, nullable=False),
    # Who is running it: host, process id and that process' birth, to tell a killed run.
    Column("process", String, nullable=False),
    # The person or service, where it is known; so of releases and recalls.
    Column("actor", String),
)

DOCUMENTS = Table(
    "documents",
    METADATA,
    _num(),
    Column("sha", String, nullable=False, unique=True),
    Column("body", Text, nullable=False),
)

ARTIFACTS = Table(
    "artifacts",
    METADATA,
    _num(),
    *_required(String, "digest", "type"),
    Column("size", BigInteger, nullable=False),
    UniqueConstraint("digest", "type"),
)

OBJECTS = Table(
    "objects",
    METADATA,
    Column("artifact", _NUM, ForeignKey("artifacts.num"), primary_key=True, autoincrement=False),
    Column("md5", String, nullable=False),
)

PORTS = Table(
    "ports",
    METADATA,
    _num(),
    *_required(String, "path", "role", "producer"),
    UniqueConstraint("path", "role", "producer"),
)

DERIVATIONS = Table(
    "derivations",
    METADATA,
    _num(),
    Column("sha", String, nullable=False, unique=True),
    Column("outputs_sha", String, nullable=False),
)

STAGE_RUNS = Table(
    "stage_runs",
    METADATA,
    _num(),
    Column("id", String, nullable=False, unique=True),
    Column("run_id", String, nullable=False, index=True),
    *_required(String, "stage", "task", "key", "status"),
    Column("derivation", _NUM, ForeignKey("derivations.num"), nullable=False, index=True),
    *_required(Float(53), "started", "ended"),
    *_required(Text, "components", "timings", "metrics"),
    *_required(String, "host", "log_path"),
    Column("error", Text),
    Column("attempt", Integer, nullable=False),
    Column("mlflow_run_id", String),
    # Address of a document; what a stage run recorded before there was one has none.
    Column("circumstances", String),
    Index("ix_stage_runs_key", "key", "status", "num"),
    Index("ix_stage_runs_stage", "stage", "status", "num"),
)

EDGES = Table(
    "edges",
    METADATA,
    Column("derivation", _NUM, ForeignKey("derivations.num"), nullable=False),
    Column("direction", SmallInteger, nullable=False),  # 0: the stage reads it, 1: it writes it
    Column("position", SmallInteger, nullable=False),
    Column("artifact", _NUM, ForeignKey("artifacts.num"), nullable=False),
    Column("port", _NUM, ForeignKey("ports.num"), nullable=False),
    Column("rows", BigInteger),
    PrimaryKeyConstraint("derivation", "direction", "position"),
    Index("ix_edges_artifact", "artifact", "direction", "derivation"),
    Index("ix_edges_port", "port", "derivation"),
    sqlite_with_rowid=False,
)

RELEASES = Table(
    "releases",
    METADATA,
    _num(),
    Column("tag", String, nullable=False, unique=True),
    Column("created", Float(53), nullable=False),
    Column("git_commit", String),
    Column("statement", String),
    Column("derivation", _NUM, ForeignKey("derivations.num"), nullable=False, index=True),
    Column("actor", String),
)

# An artifact and what it carries inside: a checkpoint its tokenizer, a table its verifiers. As for
# a release, the edges are those of a derivation that no stage run has.
COMPOSITIONS = Table(
    "compositions",
    METADATA,
    _num(),
    Column("derivation", _NUM, ForeignKey("derivations.num"), nullable=False, unique=True),
)

# What became known of a run or stage run after it was recorded; the record itself stays.
ANNOTATIONS = Table(
    "annotations",
    METADATA,
    _num(),
    *_required(String, "subject", "name"),
    Column("value", Text, nullable=False),
    UniqueConstraint("subject", "name"),
)

RECALLS = Table(
    "recalls",
    METADATA,
    _num(),
    Column("id", String, nullable=False, unique=True),
    Column("digest", String, nullable=False, index=True),
    Column("reason", Text, nullable=False),
    Column("recalled", Float(53), nullable=False),
    Column("predicate", Text),
    Column("withdrawn", Boolean, nullable=False),
    Column("cleared", Text, nullable=False),
    Column("actor", String),
)
