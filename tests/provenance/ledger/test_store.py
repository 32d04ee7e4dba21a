"""Rows by name, the same from both databases; lists of any length; notes beside records."""

from posttrain.provenance.ledger import Adoption, open_ledger
from posttrain.provenance.ledger.store import query_in


def test_a_row_has_the_names_of_its_columns(make, ledger):
    ledger.record(make.stage_run(1, key="k"))
    (row,) = ledger.store.query("SELECT s.id,s.ended-s.started AS seconds FROM stage_runs s")
    assert (row.id, row.seconds) == ("s1", 2.5)
    assert ledger.store.column("SELECT key FROM stage_runs WHERE key=:key", {"key": "k"}) == ["k"]
    assert ledger.store.query("SELECT id FROM stage_runs WHERE key='none'") == []


def test_a_list_may_be_longer_than_a_statement_takes(make, ledger):
    ledger.record(*(make.stage_run(i) for i in range(1200)))
    sql = "SELECT id FROM stage_runs WHERE key IN ({values}) AND stage=:stage"
    keys = [f"k{i}" for i in range(0, 2400, 2)]
    found = query_in(ledger.store, sql, keys, fixed={"stage": "sft"})
    assert {row.id for row in found} == {f"s{i}" for i in range(0, 1200, 2)}
    assert query_in(ledger.store, sql, keys, fixed={"stage": "other"}) == []


def test_the_last_note_counts_and_the_first_adoption_stays(ledger, url):
    ledger.annotations.note("pin", {"d1": "a", "d2": "b"})
    ledger.annotations.note("pin", {"d1": "c"})
    assert ledger.annotations.noted("pin") == {"d1": "c", "d2": "b"}
    adoption = Adoption("s2", "s1", "only moved", 5.0, ("parameter a changed",))
    ledger.annotations.adopt(adoption)
    ledger.annotations.adopt(Adoption("s2", "s0", "another word", 6.0))
    with open_ledger(url) as again:
        assert again.annotations.adoptions() == {"s2": adoption}
