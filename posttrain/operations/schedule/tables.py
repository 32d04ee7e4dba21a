"""The journal's tables, in whatever database SQLAlchemy opens."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData()
_NUM = BigInteger().with_variant(Integer, "sqlite")

SCHEDULES = Table(
    "schedules",
    METADATA,
    Column("name", String, primary_key=True),
    Column("body", Text, nullable=False),
    # What the server was last told of this schedule: other text means that it must be told anew.
    Column("deployed", Text),
    Column("removed", Boolean, nullable=False, default=False),
)

TICKS = Table(
    "ticks",
    METADATA,
    Column("num", _NUM, primary_key=True, autoincrement=True),
    Column("schedule", String, nullable=False),
    Column("due", Float(53), nullable=False),
    Column("kind", String, nullable=False),
    Column("status", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("attempt", Integer, nullable=False, default=0),
    Column("process", String),
    Column("flow_run_id", String),
    Column("run_id", String),
    Column("started", Float(53)),
    Column("ended", Float(53)),
    Column("not_before", Float(53)),
    # What the run froze when it began: commit, parameters, digests of what it watches.
    Column("frozen", Text),
    # False while a failure still waits for its retry or its notice.
    Column("settled", Boolean, nullable=False, default=True),
    UniqueConstraint("schedule", "due"),
    Index("ix_ticks_status", "status"),
)

NOTES = Table(
    "notes",
    METADATA,
    Column("num", _NUM, primary_key=True, autoincrement=True),
    Column("tick", _NUM, nullable=False, index=True),
    Column("at", Float(53), nullable=False),
    Column("text", Text, nullable=False),
)
