"""What a recall forbids: itself, all that was made from it, and for rows only what holds them."""

import pytest

from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.recalls import recall, recalled, withdraw
from posttrain.provenance.lineage.rows import cleared_tables
from posttrain.provenance.lineage.tables import open_tables
from posttrain.stage.errors import UserError


@pytest.fixture
def mark(project):
    def marker(name, reason="leaked", predicate=None):
        node = find_node(project.ledger, name, root=project.root, cwd=project.root)
        cleared = ()
        if predicate:
            cleared = cleared_tables(open_tables(project.ledger, project.root), node, predicate)
        return recall(project.ledger, node, reason=reason, predicate=predicate, cleared=cleared)

    return marker


def refused(project):
    digests = {record.digest: name for name, record in project.records.items()}
    return {digests[digest] for digest in recalled(project.ledger, list(digests))}


def test_nothing_is_refused_before_a_recall(project):
    assert refused(project) == set()


def test_everything_made_from_it_is_refused_and_the_reason_is_told(project, mark):
    mark("data/curate/kept.parquet", "test problems leaked into it")
    assert refused(project) == {"kept", "policy", "tuned", "rollouts", "report"}
    why = recalled(project.ledger, [project.digest("kept"), project.digest("report")])
    assert why[project.digest("kept")].startswith("it was recalled on 20")
    assert why[project.digest("kept")].endswith(": test problems leaked into it")
    kept = project.digest("kept")[:12]
    expected = f"it is made from data/curate/kept.parquet ({kept}), which was recalled on 20"
    assert why[project.digest("report")].startswith(expected)


def test_bytes_that_the_ledger_never_saw_are_refused_by_digest(project, mark):
    mark("data/curate/kept.parquet")
    assert recalled(project.ledger, ["ab" * 32]) == {}


def test_a_stage_run_recalls_its_outputs_and_a_release_its_members(project, mark):
    mark("rl@first")
    assert refused(project) == {"tuned", "rollouts", "report"}
    mark("v1")
    assert {each.digest for each in project.ledger.annotations.recalls()} == {
        project.digest("tuned"), project.digest("rollouts"), project.digest("report"),
    }  # fmt: skip


def test_a_withdrawal_lifts_it_and_both_stay_on_record(project, mark):
    mark("data/curate/kept.parquet")
    root = project.root
    node = find_node(project.ledger, "data/curate/kept.parquet", root=root, cwd=root)
    withdraw(project.ledger, node, reason="it was another file")
    assert refused(project) == set()
    assert project.ledger.store.query("SELECT COUNT(*) FROM recalls") == [(2,)]
    with pytest.raises(UserError, match="no recall of that node is in force"):
        withdraw(project.ledger, node, reason="again")


def test_a_recall_needs_a_reason(mark):
    with pytest.raises(UserError, match="needs a reason"):
        mark("data/curate/kept.parquet", "  ")


def test_recalled_rows_forbid_only_what_holds_them(project, mark):
    # c2 is the only row with a score below 0.5; curate dropped it, so kept is clean, and with it
    # everything that was trained on kept.
    mark("data/synthesize/completions.parquet", predicate="score < 0.5")
    assert refused(project) == {"completions", "dropped"}
    why = recalled(project.ledger, [project.digest("completions")])
    assert "it has rows that were recalled" in why[project.digest("completions")]
    assert "(rows where score < 0.5)" in why[project.digest("completions")]


def test_recalled_rows_are_followed_by_parent_and_through_models(project, mark):
    # p2 is the parent of c3, which was kept: whatever was trained on kept is bad. The rollouts
    # descend from p1 and p3 only, but a policy trained on c3 wrote them.
    mark("data/problems/problems.parquet", predicate="id = 'p2'")
    assert refused(project) == {
        "problems", "completions", "kept", "policy", "tuned", "rollouts", "report",
    }  # fmt: skip


def test_a_table_whose_bytes_are_gone_is_not_cleared(project, mark):
    (project.root / "data/curate/kept.parquet").unlink()
    mark("data/synthesize/completions.parquet", predicate="score < 0.5")
    assert {"kept", "policy", "report"} <= refused(project)
