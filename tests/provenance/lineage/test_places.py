"""Paths of artifacts where recipes share a ledger: a shown one exists, and is found again."""

import json

import polars as pl
import pytest
from click.testing import CliRunner

from posttrain.cli.main import cli
from posttrain.provenance.ledger import Run
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.stage.hashing import digest_path


@pytest.fixture
def small(project, monkeypatch):
    """A second recipe, which made its own policy at the path that the first one has."""
    source = project.artifact("shared", "source", "raw.jsonl")
    folder = project.root / "recipes" / "small"
    (folder / "data" / "sft" / "policy").mkdir(parents=True)
    (folder / "data" / "sft" / "policy" / "model.safetensors").write_text("smaller weights")
    pl.DataFrame({"id": ["c9"], "parents": [["p1"]]}).write_parquet(folder / "data/rows.parquet")
    project.ledger.append_run(
        Run("other", "small", 10.0, status="succeeded", ended=12.0), process="x"
    )
    for name, kind, path in (
        ("small policy", "checkpoint", "data/sft/policy"),
        ("small rows", "completions", "data/rows.parquet"),
    ):
        real = project.artifact(name, kind, f"recipes/small/{path}", producer="sft")
        project.records[name] = type(real)(**{**vars(real), "path": path, "rows": None})
    # From its folder, as stages record what comes from outside.
    project.records["shared"] = type(source)(**{**vars(source), "path": "../../raw.jsonl"})
    project.stage("other", "sft", ["shared"], ["small policy", "small rows"])
    monkeypatch.chdir(project.root)
    return project


def call(*arguments):
    done = CliRunner().invoke(cli, ["lineage", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_an_artifact_is_shown_where_it_lies_from_the_projects_root(small):
    tree = call("up", "sft@other")
    assert "  raw.jsonl" in tree
    assert "../" not in tree
    short = small.digest("small policy")[:12]
    (line,) = (each for each in call("down", "raw.jsonl").splitlines() if short in each)
    assert "  recipes/small/data/sft/policy" in line
    graph = json.loads(call("down", "raw.jsonl", "--format", "json"))
    for node in graph["nodes"]:
        if node["kind"] == "artifact":
            assert (small.root / node["name"]).exists(), node["name"]
    names = {node["name"] for node in graph["nodes"]}
    assert {"data/sft/policy", "recipes/small/data/sft/policy"} <= names


def test_a_shown_path_names_its_node_again(small):
    tree = call("up", "recipes/small/data/sft/policy")
    assert tree.startswith(f"checkpoint {small.digest('small policy')[:12]}  recipes/small/data/")
    first = small.digest("policy")[:12]
    assert call("up", "data/sft/policy").startswith(f"checkpoint {first}  data/sft/policy")


def test_impact_shows_them_alike(small):
    assert "recipes/small/data/rows.parquet" in call("impact", "raw.jsonl")


def test_rows_say_of_which_recipe_their_table_is(small):
    done = CliRunner().invoke(cli, ["rows", small.digest("small rows")], catch_exceptions=False)
    assert done.output.startswith("1 row of recipes/small/data/rows.parquet, made by sft@other")


@pytest.mark.parametrize("folder", ["experiments/a", "recipes/group/a"])
def test_a_recipe_may_lie_in_any_folder_of_the_project(toy, monkeypatch, folder):
    toy.write(f"{folder}/recipe.yaml", f"flow: {toy.flow}\nfirst: {{amount: 7}}\n")
    monkeypatch.chdir(toy.root)
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")
    for recipe in (".", folder):
        done = CliRunner().invoke(cli, ["run", "--local", recipe], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    made = f"{folder}/data/first/result.json"
    digest = digest_path(toy.root / made).sha256
    assert call("up", digest).startswith(f"report {digest[:12]}  {made}")
    assert f"  {made}" in call("up", f"{folder}/data/second/result.json")
    assert "  data/first/result.json" in call("up", "data/second/result.json")
    assert Finder(toy.root).find("data/first/result.json", digest) == toy.root / made


def test_what_lies_nowhere_is_shown_where_it_was_made(small):
    (small.root / "recipes/small/data/sft/policy/model.safetensors").unlink()
    (small.root / "recipes/small/data/sft/policy").rmdir()
    tree = call("up", small.digest("small policy"))
    assert "recipes/small/data/sft/policy" in tree.splitlines()[0]
