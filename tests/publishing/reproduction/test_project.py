"""What is read of a project that another posttrain ran."""

from contextlib import closing

import pytest

from posttrain.pipeline.execution.session import open_session
from posttrain.pipeline.recipe import load_recipe
from posttrain.provenance.ledger import migrate
from posttrain.provenance.ledger.store import SqliteStore
from posttrain.provenance.ledger.version import stored_version
from posttrain.publishing.reproduction.project import Mirror, foreign_environment, last_run

RUN = """
INSERT INTO runs (id, recipe, started, status, git_dirty, command, overrides, process)
VALUES ('r1', 'recipe.yaml', 0.0, 'succeeded', 0, 'run', '{}', 'host 1 1')
"""
DERIVATION = "INSERT INTO derivations (num, sha, outputs_sha) VALUES (1, 'd', 'o')"
STAGE = """
INSERT INTO stage_runs (id, run_id, stage, task, key, status, derivation, started, ended,
    components, timings, metrics, host, log_path, attempt)
VALUES ('s1', 'r1', 'first', 't', 'k', 'succeeded', 1, 0.0, 1.0, '{}', '{}', '{}', '', '', 1)
"""


def test_what_a_former_posttrain_made_is_read_and_its_ledger_stays_its_own(tmp_path):
    path = tmp_path / ".posttrain" / "ledger.db"
    path.parent.mkdir()
    migrate.upgrade(f"sqlite:///{path}", "0002")
    with closing(SqliteStore(path)) as store:
        with store.transaction():
            for statement in (RUN, DERIVATION, STAGE):
                store.execute_many(statement, [{}])
        made = last_run(tmp_path)
        assert {name: run.status for name, run in made.items()} == {"first": "succeeded"}
        assert stored_version(store) == "0002"


def test_code_from_elsewhere_is_given_no_secret(monkeypatch):
    kept = {
        "CUDA_VISIBLE_DEVICES": "0",
        "LC_ALL": "C",
        "HF_HOME": "/cache",
        "MKL_CBWR": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F",
        "TOKENIZERS_PARALLELISM": "false",
        "https_proxy": "http://proxy:80",
    }
    withheld = {
        "HF_TOKEN": "x",
        "HUGGING_FACE_HUB_TOKEN": "x",
        "OPENAI_API_KEY": "x",
        "MLFLOW_TRACKING_PASSWORD": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "POSTTRAIN_KEY_PASSPHRASE": "x",
        "POSTTRAIN_LEDGER": "postgresql://me:x@db/y",
        "POSTTRAIN_DATABASE": "postgresql://me:x@db/y",
        "POSTTRAIN_SCHEDULES": "/elsewhere/schedules.db",
        "RAY_AUTH_TOKEN": "x",
        "http_proxy": "http://me:x@proxy:80",
        "SSH_AUTH_SOCK": "/run/agent",
        "MY_OWN": "x",
    }
    for name, value in {**kept, **withheld}.items():
        monkeypatch.setenv(name, value)
    given = foreign_environment()
    assert {name: given.get(name) for name in kept} == kept
    assert withheld.keys() & given.keys() == set()
    assert given["POSTTRAIN_TRACKING"] == "off"
    assert foreign_environment(["HF_TOKEN"])["HF_TOKEN"] == "x"


@pytest.mark.parametrize("profile", ["tiny", "real"])
def test_a_mirror_has_the_profile_that_the_recipe_came_to(toy, tmp_path, profile):
    file = toy.root / "recipe.yaml"
    file.write_text(f"{file.read_text()}\nformat: 3\nprofile: {profile}\n")
    with open_session(file) as session:
        mirror = Mirror(session, tmp_path / "elsewhere")
    assert load_recipe(mirror.recipe).profile.name == profile
