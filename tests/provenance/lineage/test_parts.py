"""Tokenizer, template and judge are nodes: walked, drawn, named, and recalled like any other."""

from dataclasses import replace

import click
import pytest

from posttrain.provenance.ledger import ArtifactRecord, Composition
from posttrain.provenance.lineage import queries
from posttrain.provenance.lineage.impact import impact
from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.recalls import recall, refuse_recalled, withdraw
from posttrain.provenance.lineage.render import FORMATS, View
from posttrain.stage.errors import UserError


@pytest.fixture
def composed(project):
    """The project, in which policy and tuned hold one tokenizer, and `kept` has one judge."""
    for name in ("policy", "tuned"):
        whole = project.records[name]
        tokenizer = part("tokenizer", f"{whole.path}#tokenizer", "70" * 32, size=900)
        project.ledger.compositions.add(
            Composition(whole, (tokenizer, part("template", "template:plain", "7e" * 32)))
        )
    verifier = part("verifier", "verifier:numeric", "1d" * 32)
    for name in ("completions", "kept"):
        project.ledger.compositions.add(Composition(project.records[name], (verifier,)))
    return project


def part(kind, path, digest, *, size=0):
    return ArtifactRecord(kind, kind, path, digest, size)


def node(project, name):
    return find_node(project.ledger, name, root=project.root, cwd=project.root)


def names(graph):
    return {each.name for each in graph.nodes.values() if each.kind == "artifact"}


@pytest.mark.parametrize("name", ["verifier:numeric", "1d1d1d1d", "verifier:1d1d1d"])
def test_a_verifier_leads_to_all_that_hangs_on_its_scores(composed, name):
    found = queries.down(composed.ledger, node(composed, name))
    assert names(found) == {
        "verifier:numeric",
        "data/synthesize/completions.parquet",
        "data/curate/kept.parquet",
        "data/curate/dropped.parquet",
        "data/sft/policy",
        "data/rl/tuned",
        "data/rl/rollouts.parquet",
        "data/evaluate/report.json",
    }
    assert any(each.kind == "release" for each in found.nodes.values())


def test_up_shows_the_parts_once_by_the_first_that_held_them(composed):
    found = queries.up(composed.ledger, node(composed, "data/rl/tuned"))
    assert {"data/sft/policy#tokenizer", "template:plain", "verifier:numeric"} <= names(found)
    tokenizer = f"tokenizer:{'70' * 32}"
    held = {(edge.target, edge.role) for edge in found.edges if edge.source == tokenizer}
    digests = [composed.digest("policy"), composed.digest("tuned")]
    assert held == {(f"checkpoint:{digest}", "tokenizer") for digest in digests}


def test_a_verifier_of_two_tables_makes_them_no_neighbors(composed):
    near = queries.up(composed.ledger, node(composed, "data/curate/kept.parquet")).within(1)
    tables = {"data/curate/kept.parquet", "data/synthesize/completions.parquet"}
    assert names(near) == {*tables, "verifier:numeric"}
    assert [each.name for each in near.nodes.values() if each.kind == "stage"] == ["curate"]
    # Asked of the verifier itself, its tables are what is next to it.
    held = queries.down(composed.ledger, node(composed, "verifier:numeric")).within(1)
    assert tables <= names(held)


def test_a_newer_checkpoint_finds_the_tokenizer_under_its_own_name_too(composed):
    assert node(composed, "data/rl/tuned#tokenizer") == node(composed, "data/sft/policy#tokenizer")


def test_replacing_a_tokenizer_takes_every_stage_that_wrote_it_and_what_follows(composed):
    found = impact(composed.ledger, node(composed, "data/sft/policy#tokenizer"), composed.root)
    assert found.affected[0].kind == "release"
    assert [each.stage for each in found.rebuild] == ["sft", "rl", "evaluate"]


def test_a_recalled_tokenizer_forbids_what_holds_it_and_the_withdrawal_lifts_that(composed):
    tokenizer = node(composed, "data/sft/policy#tokenizer")
    recall(composed.ledger, tokenizer, reason="drops digits")
    refuse_recalled(composed.ledger, [composed.records["kept"]])
    for name in ("policy", "tuned", "report"):
        with pytest.raises(UserError, match="made from data/.*#tokenizer.*drops digits"):
            refuse_recalled(composed.ledger, [composed.records[name]])
    withdraw(composed.ledger, tokenizer, reason="it was the font")
    refuse_recalled(composed.ledger, [composed.records["tuned"]])


def test_every_drawing_tells_parts_from_data(composed):
    graph = queries.up(composed.ledger, node(composed, "data/rl/tuned"))
    view = View(graph, "up", composed.ledger, composed.root)
    tree = click.unstyle(FORMATS["tree"](view))
    assert f"tokenizer: tokenizer {'70' * 6}  data/sft/policy#tokenizer  900 B" in tree
    assert f"verifier: verifier {'1d' * 6}  verifier:numeric\n" in tree
    mermaid = FORMATS["mermaid"](view)
    assert f'{{"verifier {"1d" * 6}<br/>verifier:numeric"}}' in mermaid
    assert f'[["tokenizer {"70" * 6}<br/>data/sft/policy#35;tokenizer"]]' in mermaid
    for form in ("json", "openlineage", "html"):
        assert FORMATS[form](view)


def test_a_changed_verifier_is_another_node(composed):
    changed = part("verifier", "verifier:numeric", "2d" * 32)
    whole = replace(composed.records["kept"], digest="ab" * 32)
    composed.ledger.compositions.add(Composition(whole, (changed,)))
    newest = node(composed, "verifier:numeric")
    assert newest.id == f"verifier:{'2d' * 32}"
    recall(composed.ledger, newest, reason="too kind")
    refuse_recalled(composed.ledger, [composed.records["kept"]])
