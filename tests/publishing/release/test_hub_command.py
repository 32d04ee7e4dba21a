"""`posttrain hub` as a user runs it in a real project, against the stand-in of the hub."""

import subprocess
import sys

import pytest
import yaml

from tests import hub_server

pytestmark = pytest.mark.slow


@pytest.fixture
def hub():
    """The stand-in of `tests.hub_server`."""
    made, server = hub_server.started()
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture
def command(released, hub):
    def run(*arguments, code=0):
        environment = hub_server.environment(hub) | {"COLUMNS": "250"}
        done = subprocess.run(
            [sys.executable, "-m", "posttrain", "hub", *map(str, arguments)],
            cwd=released.project.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


TABLES = ("synthesize.problems", "synthesize.heldout")


def test_two_tables_are_pushed_as_a_data_set_with_its_card(command, hub):
    said = command("push", *TABLES, "me/sums", "--license", "MIT", "--language", "en")
    there = hub.dataset("me/sums")
    assert "me/sums: http" in said
    assert there.private
    head = yaml.safe_load(there.files["README.md"].decode().split("---")[1])
    (config,) = head["configs"]
    assert [each["split"] for each in config["data_files"]] == ["train", "test"]
    assert {each["path"] for each in config["data_files"]} <= there.files.keys()
    # Written by a generator and a teacher that errs.
    assert head["tags"] == ["posttrain", "synthetic"]
    assert head["source_datasets"] == ["original"]
    assert head["license"] == "mit"
    assert there.messages[-1] == "synthesize.problems synthesize.heldout of posttrain"


def test_a_folder_gets_the_same_files_and_is_not_written_over(command, tmp_path):
    out = tmp_path / "out"
    assert "4 files" in command("export", *TABLES, out)
    assert (out / "croissant.json").is_file()
    assert "is not empty" in command("export", *TABLES, out, code=2)


def test_what_is_no_table_and_no_adapter_is_told_where_to_go(command, tmp_path):
    said = command("export", "sft.policy", tmp_path / "out", code=2)
    assert "whole models go to the hub as releases: posttrain release push" in said
    said = command("export", "synthesize.problem", tmp_path / "new", code=2)
    assert "no stage has made 'synthesize.problem'; did you mean 'synthesize.problems'?" in said
    said = command("push", *TABLES, "me/x", "--license", "Own License", code=2)
    assert "is none of the licenses that the Hugging Face hub lists" in said
