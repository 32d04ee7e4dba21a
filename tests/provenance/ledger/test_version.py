"""The schema's version: stamped, migrated when old, refused when new."""

import sqlite3
import textwrap
from dataclasses import replace

import pytest
import sqlalchemy

from posttrain.provenance.ledger import migrate, open_ledger, schema, version
from posttrain.provenance.ledger.annotations import TRACKED
from posttrain.provenance.ledger.records import Composition, Run
from posttrain.stage.errors import UserError


def tables(url):
    place = migrate.driver_url(url) if "://" in url else f"sqlite:///{url}"
    engine = sqlalchemy.create_engine(place)
    inspector = sqlalchemy.inspect(engine)
    found = {
        table: sorted(
            (column["name"], str(column["type"]), column["nullable"])
            for column in inspector.get_columns(table)
        )
        + sorted(
            (str(index["name"]), tuple(index["column_names"]))
            for index in inspector.get_indexes(table)
        )
        for table in inspector.get_table_names()
    }
    engine.dispose()
    return found


def test_a_fresh_ledger_is_stamped_and_equals_the_declared_schema(ledger, url):
    assert version.stored_version(ledger.store) == version.HEAD
    names = {table.name for table in schema.METADATA.sorted_tables}
    assert set(tables(url)) == names | {"alembic_version"}


def test_alembic_from_nothing_builds_what_a_fresh_ledger_has(ledger, url, tmp_path, request):
    if "://" in url:
        other = request.getfixturevalue("postgres_url")
    else:
        other = f"sqlite:///{tmp_path / 'other.db'}"
    migrate.upgrade(migrate.driver_url(other), version.HEAD)
    assert tables(other) == tables(url)


def test_the_judges_of_an_older_ledger_are_verifiers(make, tmp_path):
    path = tmp_path / "ledger.db"
    table, judge = make.artifact("table", "d1"), make.artifact("judge", "j1", type="judge")
    # A task of one's own may call a port so, and what it makes: that is no part of a table.
    port = replace(make.artifact("judge", "r1", type="judge"), path="data/judge")
    with open_ledger(path) as ledger:
        ledger.compositions.add(Composition(table, (replace(judge, path="judge:numeric"), port)))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE alembic_version SET version_num = '0002'")
        database.execute("ALTER TABLE stage_runs DROP COLUMN circumstances")
        for table in ("runs", "releases", "recalls"):
            database.execute(f"ALTER TABLE {table} DROP COLUMN actor")
    with open_ledger(path) as ledger:
        verifier = replace(judge, type="verifier", role="verifier", path="verifier:numeric")
        assert ledger.compositions.parts_of(["d1"]) == {"d1": (verifier, port)}


def test_an_older_ledger_is_migrated_with_its_records(make, tmp_path, monkeypatch):
    path = tmp_path / "ledger.db"
    with open_ledger(path) as ledger:
        ledger.record(make.full_stage_run())
    scripts = tmp_path / "migrations"
    (scripts / "versions").mkdir(parents=True)
    for script in migrate.MIGRATIONS.rglob("*.py"):
        (scripts / script.relative_to(migrate.MIGRATIONS)).write_text(script.read_text())
    (scripts / "versions" / "9000_tags.py").write_text(
        textwrap.dedent(f"""
        import sqlalchemy as sa
        from alembic import op
        revision, down_revision = "9000", "{version.HEAD}"
        def upgrade():
            op.add_column("stage_runs", sa.Column("tag", sa.String, server_default="none"))
        """)
    )
    monkeypatch.setattr(migrate, "MIGRATIONS", scripts)
    monkeypatch.setattr(version, "REVISIONS", (*version.REVISIONS, "9000"))
    monkeypatch.setattr(version, "HEAD", "9000")
    with open_ledger(path) as ledger:
        assert version.stored_version(ledger.store) == "9000"
        assert ledger.store.query("SELECT tag FROM stage_runs") == [("none",)]
        assert ledger.stage_run("s-full") == make.full_stage_run()


def test_a_ledger_of_the_first_schema_gains_parts_and_annotations(make, tmp_path):
    path = tmp_path / "ledger.db"
    migrate.upgrade(f"sqlite:///{path}", "0001")
    old = sqlite3.connect(path)
    assert not {"compositions", "annotations"} & {
        row[0] for row in old.execute("SELECT name FROM sqlite_master")
    }
    old.close()
    stage_run = replace(make.full_stage_run(), mlflow_run_id=None)
    with open_ledger(path) as ledger:
        ledger.record(stage_run)
        ledger.annotations.note(TRACKED, {stage_run.id: "late"})
        assert ledger.stage_run(stage_run.id).mlflow_run_id == "late"


def test_of_what_ran_before_actors_were_recorded_none_is_known(tmp_path):
    path = tmp_path / "ledger.db"
    migrate.upgrade(f"sqlite:///{path}", "0004")
    with sqlite3.connect(path) as old:
        old.execute(
            "INSERT INTO runs (id,recipe,started,status,git_dirty,command,overrides,process)"
            " VALUES ('r1','small',5.0,'succeeded',0,'','{}','host 1 gone')"
        )
    with open_ledger(path) as ledger:
        ledger.append_run(Run("r2", "small", 6.0, actor="ada (GitLab CI)"), process="host 2 gone")
        assert [(run.id, run.actor) for run in ledger.runs()] == [
            ("r2", "ada (GitLab CI)"),
            ("r1", None),
        ]


def test_a_newer_ledger_is_refused_and_left_alone(ledger, url):
    with ledger.store.transaction():
        ledger.store.execute_many("UPDATE alembic_version SET version_num='9999'", [{}])
    ledger.close()
    with pytest.raises(UserError, match=r"newer posttrain \(schema 9999"):
        open_ledger(url)


def test_a_foreign_file_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("not a database, " * 100)
    with pytest.raises(UserError, match=r"notes.txt cannot be opened.*name another path"):
        open_ledger(tmp_path / "notes.txt")
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("CREATE TABLE runs (x)")
    connection.close()
    with pytest.raises(UserError, match="belongs to another program"):
        open_ledger(tmp_path / "other.db")


def test_a_missing_server_is_one_sentence_without_the_password():
    for credentials in ("user:hunter2", "user:hunt@hunter2", "hunter2"):
        with pytest.raises(UserError) as error:
            open_ledger(f"postgresql://{credentials}@127.0.0.1:9/none")
        assert "cannot open the ledger" in str(error.value)
        assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("url", ["nosuch://x/y", "postgresql+nosuch://x/y", "postgresql://[x"])
def test_a_bad_url_is_one_sentence(url):
    with pytest.raises(UserError, match="cannot open the ledger"):
        open_ledger(url)
