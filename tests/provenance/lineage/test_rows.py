"""Rows followed through tables, by hand and against a plain search."""

import random

import polars as pl
import pytest

from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.rows import came_from, trace
from posttrain.provenance.lineage.tables import open_tables
from posttrain.stage.errors import UserError


class Asker:
    def __init__(self, project):
        self.project = project
        self.tables = open_tables(project.ledger, project.root)

    def node(self, name):
        root = self.project.root
        return find_node(self.project.ledger, self.project.digest(name), root=root, cwd=root)

    def table(self, name):
        return self.tables.of_node(self.node(name))

    def trace(self, name, where=None, **options):
        table = self.table(name)
        found = trace(self.tables, self.node(name), table.numbers(where), **options)
        digests = {record.digest: known for known, record in self.project.records.items()}
        return {
            digests[step.table.id.partition(":")[2]]: step.sample(99)["id"].to_list()
            for step in found.steps
        }, found


@pytest.fixture
def ask(project):
    return Asker(project)


def test_up_follows_own_ids_and_parents(ask):
    # kept holds c1 (of p1), c3 (of p2) and c4 (of p3).
    steps, _ = ask.trace("kept", "id = 'c1'")
    assert steps == {"completions": ["c1"], "problems": ["p1"]}
    assert list(steps) == ["completions", "problems"]
    assert ask.trace("kept")[0] == {
        "completions": ["c1", "c3", "c4"],
        "problems": ["p1", "p2", "p3"],
    }
    assert ask.trace("kept", "score > 5")[0] == {}


def test_up_from_rollouts_goes_to_problems_not_to_siblings(ask):
    assert ask.trace("rollouts", "id = 'r1'")[0] == {"problems": ["p1"]}


def test_family_adds_what_upstream_tables_made_from_the_same_ancestors(ask):
    # r1 is an attempt at p1; c1 and c2 were generated for p1, c1 was kept and trained on.
    steps, _ = ask.trace("rollouts", "id = 'r1'", mode="family")
    assert steps == {"kept": ["c1"], "completions": ["c1", "c2"], "problems": ["p1"]}


def test_down_follows_rows_into_later_tables(ask):
    steps, _ = ask.trace("problems", "id = 'p1'", mode="down")
    assert steps == {
        "completions": ["c1", "c2"],
        "kept": ["c1"],
        "dropped": ["c2"],
        "rollouts": ["r1"],
    }


def test_origin_keeps_rows_with_a_fitting_ancestor(ask):
    _, found = ask.trace("kept")
    table = ask.table("kept")

    def ids(origin, predicate):
        options = {"origin": origin, "predicate": predicate}
        rows = came_from(found.steps, table, table.numbers(), **options)
        return table.take(rows).collect()["id"].to_list()

    assert ids("synthesize", "generator = 'large'") == ["c4"]
    assert ids("data/synthesize/completions.parquet", "generator = 'small'") == ["c1", "c3"]
    assert ids("problems.problems", "source = 'sum'") == ["c1", "c3"]
    assert ids("problems", "source = 'none'") == []
    with pytest.raises(UserError, match=r"no row leads to a table 'synthesise'"):
        ids("synthesise", "true")


def test_which_stage_made_the_table_and_with_which_threshold(ask):
    maker = ask.table("kept").maker
    assert maker.title == "curate@first"
    assert maker.facts["param threshold"] == "0.5"


def test_bytes_that_are_gone_are_named_and_rows_found_past_them_by_id(ask, project):
    (project.root / "data/synthesize/completions.parquet").unlink()
    steps, found = ask.trace("kept", "id = 'c1'")
    assert steps == {"problems": ["p1"]}
    assert found.gone == ("data/synthesize/completions.parquet",)
    (project.root / "data/curate/kept.parquet").unlink()
    with pytest.raises(UserError, match="the bytes of data/curate/kept.parquet are gone"):
        ask.table("kept")


def test_bytes_are_found_in_the_dvc_cache_by_digest(ask, project):
    path = project.root / "data/synthesize/completions.parquet"
    cached = project.root / ".dvc/cache/files/md5/ab/cdef"
    cached.parent.mkdir(parents=True)
    path.rename(cached)
    found = ask.tables.finder.find("gone", project.digest("completions"), "abcdef")
    assert found == cached
    cached.write_bytes(b"damaged")
    assert ask.tables.finder.find("gone", project.digest("completions"), "abcdef") is None


@pytest.mark.parametrize(
    ("predicate", "complaint"),
    [
        (
            "scoer > 1",
            r"kept.parquet has no column 'scoer'; did you mean 'score'\?.*it has id",
        ),
        ("score >", "'score >' is no SQL expression over data/curate/kept.parquet"),
        ("generator > 1", "the expression does not fit data/curate/kept.parquet"),
        ("", "is no SQL expression"),
    ],
)
def test_a_wrong_expression_is_one_sentence(ask, predicate, complaint):
    with pytest.raises(UserError, match=complaint) as error:
        ask.table("kept").numbers(predicate)
    assert "\n" not in str(error.value)


def test_what_is_no_table_is_refused(ask):
    with pytest.raises(UserError, match="data/sft/policy is not a table"):
        ask.table("policy")


def test_a_filter_that_drops_nothing_does_not_hang(ask, project):
    project.stage("second", "noop", ["kept"], ["kept"])
    assert ask.trace("kept", "id = 'c1'")[0] == {"completions": ["c1"], "problems": ["p1"]}


@pytest.mark.parametrize("seed", range(4))
def test_traces_equal_a_plain_search_on_random_tables(project, seed):
    chance = random.Random(seed)
    layers = _random_layers(chance)
    previous = "raw"
    for depth, layer in enumerate(layers):
        path = f"data/layer{depth}.parquet"
        ids, parents = [row[0] for row in layer], [row[1] for row in layer]
        schema = {"id": pl.String, "parents": pl.List(pl.String)}
        pl.DataFrame({"id": ids, "parents": parents}, schema=schema).write_parquet(
            project.root / path
        )
        project.artifact(f"layer{depth}", "completions", path, producer=f"stage{depth}")
        project.stage(f"run{depth}", f"stage{depth}", [previous], [f"layer{depth}"])
        previous = f"layer{depth}"
    ask = Asker(project)
    chosen = chance.choice(layers[-1])[0]
    found, _ = ask.trace(f"layer{len(layers) - 1}", f"id = '{chosen}'")
    expected = _search_up(layers, chosen)
    assert {name: set(ids) for name, ids in found.items()} == expected


def _random_layers(chance):
    """Rows of a layer are taken over from the one before, or made from up to three of its rows."""
    layers = [[(f"a{i}", []) for i in range(20)]]
    for depth in "bcd":
        before = [row[0] for row in layers[-1]]
        kept = [row for row in layers[-1] if chance.random() < 0.4]
        made = [(f"{depth}{i}", chance.sample(before, chance.randrange(4))) for i in range(15)]
        layers.append(kept + made)
    return layers


def _search_up(layers, chosen):
    rows = dict(layers[-1])
    wanted, expected = {chosen, *rows[chosen]}, {}
    for depth in reversed(range(len(layers) - 1)):
        met = [(name, parents) for name, parents in layers[depth] if name in wanted]
        if met:
            expected[f"layer{depth}"] = {name for name, _ in met}
        for _, parents in met:
            wanted.update(parents)
    return expected
