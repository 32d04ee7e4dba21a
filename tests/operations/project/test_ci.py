"""What forges are given: by their own schemas, and what each script does when it is run here."""

import json
import os
import subprocess
from pathlib import Path

import check_jsonschema
import jsonschema
import pytest
from ruamel.yaml import YAML

from posttrain.operations.project.ci import CI_FILES, text_for
from tests.called import called

_SCHEMAS = Path(check_jsonschema.__file__).parent / "builtin_schemas/vendor"
SCHEMAS = {"github": "github-workflows.json", "gitlab": "gitlab-ci.json"}


def parsed(forge):
    return YAML(typ="safe").load(text_for(forge))


@pytest.mark.parametrize("forge", [*CI_FILES])
def test_it_is_what_the_forge_publishes_a_schema_for(forge):
    schema = json.loads((_SCHEMAS / SCHEMAS[forge]).read_text())
    kind = jsonschema.validators.validator_for(schema)
    assert [error.message for error in kind(schema).iter_errors(parsed(forge))] == []
    broken = {**parsed(forge), "jobs": {}, "posttrain": {"script": 1, "rules": 2}}
    assert [*kind(schema).iter_errors(broken)]


def script_of(forge):
    """The lines that compare, and what the forge would set."""
    if forge == "gitlab":
        return parsed("gitlab")["posttrain"]["script"][-1]
    steps = parsed("github")["jobs"]["compare"]["steps"]
    return next(step["run"] for step in steps if step.get("id") == "compare")


@pytest.mark.parametrize(
    ("forge", "code", "ended"),
    [
        ("github", 0, 0), ("github", 1, 0), ("github", 2, 1),
        ("gitlab", 0, 0), ("gitlab", 1, 1), ("gitlab", 2, 1),
    ],
)  # fmt: skip
def test_a_gate_that_fails_is_told_and_a_mistake_ends_the_job(tmp_path, forge, code, ended):
    """With stand-ins for posttrain and curl. On GitHub a later step ends the job."""
    for name, body in {
        "posttrain": f'echo "compared $2"; exit {code}',
        "curl": 'printf "%s\\n" "$@" > curl.txt',
    }.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    given = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "BASE": "main",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "POSTTRAIN_COMMENT_TOKEN": "secret",
        "CI_API_V4_URL": "https://forge/api/v4",
        "CI_PROJECT_ID": "7",
        "CI_MERGE_REQUEST_IID": "3",
    }
    done = subprocess.run(
        ["bash", "-e", "-c", script_of(forge)], cwd=tmp_path, env=given, capture_output=True
    )
    assert done.returncode == ended
    if forge == "github":
        assert (tmp_path / "comment.md").read_text() == "compared origin/main\n"
        assert (tmp_path / "output").read_text() == f"code={code}\n"
        assert (tmp_path / "summary").read_text() == "compared origin/main\n"
    elif code < 2:
        sent = (tmp_path / "curl.txt").read_text().splitlines()
        assert sent[-1] == "https://forge/api/v4/projects/7/merge_requests/3/notes"
        assert "body@comment.md" in sent
        assert b"secret" not in done.stdout + done.stderr


def test_it_is_added_to_a_project_and_never_over_what_is_there(toy, monkeypatch, capfd):
    (toy.root / "data").mkdir()
    monkeypatch.chdir(toy.root / "data")
    done = called("init", "--ci", "github", patch=monkeypatch, capture=capfd)
    assert done.code == 0
    assert (toy.root / CI_FILES["github"]).read_text() == text_for("github")
    again = called("init", "--ci", "github", patch=monkeypatch, capture=capfd)
    assert again.code == 2
    assert "stays as it is" in again.sentence
    assert called("init", patch=monkeypatch, capture=capfd).code == 2
