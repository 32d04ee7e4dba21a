"""SQL that the two databases spell differently; every other statement is the same text for both."""

from collections.abc import Mapping

OWN_TABLES: Mapping[str, str] = {
    "sqlite": "SELECT name FROM sqlite_master",
    "postgresql": "SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema()",
}
"""The tables of the database, as `name`."""

WRITER_LOCK: Mapping[str, str] = {
    "sqlite": "BEGIN IMMEDIATE",
    # One writer at a time, also across machines: any constant will do as long as it is ours.
    "postgresql": f"SELECT pg_advisory_xact_lock({0x706F7374})",
}
"""What makes a transaction the only one that writes, waiting for the one that does."""

NUMBERS: Mapping[str, str] = {
    "sqlite": "json_each(:numbers) numbers",
    "postgresql": (
        "(SELECT CAST(value AS bigint) AS value"
        " FROM json_array_elements_text(CAST(:numbers AS json))) numbers"
    ),
}
"""A table `numbers` with one column `value`, from the JSON array that is the parameter `numbers`:
twice as fast as an IN, and of any length."""
