"""The questions of lineage, asked of every database: the same SQL must mean the same."""

from pathlib import Path

import pytest

from posttrain.provenance.ledger import Release, Run
from posttrain.provenance.lineage import queries, walk
from posttrain.provenance.lineage.impact import impact
from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.recalls import recall, recalled

NOWHERE = Path("/nonexistent")


@pytest.fixture
def chain(ledger, make):
    """raw -> make -> table -> train -> model, and table -> use -> report; v1 = model."""
    raw, table = make.artifact("raw", "aa" * 32), make.artifact("table", "bb" * 32, producer="make")
    model = make.artifact("model", "cc" * 32, producer="train")
    report = make.artifact("report", "dd" * 32, producer="use")
    ledger.append_run(Run("r1", "small", 1.0), process="elsewhere 1 x")
    ledger.record(
        make.stage_run(1, "make", inputs=(raw,), outputs=(table,)),
        make.stage_run(2, "train", inputs=(table,), outputs=(model,)),
        make.stage_run(3, "use", inputs=(table,), outputs=(report,)),
        make.stage_run(4, "train", key="k2", status="cached", inputs=(table,), outputs=(model,)),
    )
    ledger.annotations.release(Release("v1", 9.0, (model,)))
    return ledger


def find(ledger, name):
    return find_node(ledger, name, root=NOWHERE, cwd=NOWHERE)


def names(graph):
    return {node.name for node in graph.nodes.values()}


def test_up_down_and_between(chain):
    above = queries.up(chain, find(chain, "cccc"))
    assert names(above) == {
        "data/model.parquet",
        "train",
        "data/table.parquet",
        "make",
        "data/raw.parquet",
    }
    below = queries.down(chain, find(chain, "data/raw.parquet"))
    assert names(below) == names(above) | {"use", "data/report.parquet", "v1"}
    assert len(below.edges) == 7
    way = queries.between(chain, find(chain, "v1"), find(chain, "make@r1"))
    assert names(way) == {"v1", "data/model.parquet", "train", "data/table.parquet", "make"}


def test_walks_go_level_by_level_and_avoid_what_they_are_told_to(chain):
    numbers = {digest: num for num, digest in chain.store.query("SELECT num,digest FROM artifacts")}
    raw, table, model, report = (numbers[pair * 32] for pair in ("aa", "bb", "cc", "dd"))
    found = walk.descendants(chain.store, [raw])
    assert found[:2] == [raw, table]
    assert set(found[2:]) == {model, report}
    assert walk.descendants(chain.store, [raw], without=[table]) == [raw]
    assert walk.ancestors(chain.store, [model, report])[-1] == raw
    assert walk.ancestors(chain.store, []) == []


def test_impact_and_recall(chain):
    found = impact(chain, find(chain, "bbbb"), Path())
    assert [node.name for node in found.affected][0] == "v1"
    assert [each.stage for each in found.rebuild] == ["make", "train", "use"]
    recall(chain, find(chain, "aaaa"), reason="bad")
    why = recalled(chain, ["aa" * 32, "dd" * 32, "ee" * 32])
    assert set(why) == {"aa" * 32, "dd" * 32}
    assert "data/raw.parquet" in why["dd" * 32]
