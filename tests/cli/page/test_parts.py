"""Parts of the app on their own: tokens as text, what is kept, what a run notes of itself."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from posttrain.cli.page.distributions import spreads_of
from posttrain.cli.page.rollouts import RolloutToken, spans_by_token, token_texts
from posttrain.cli.page.table_diff import differing_rows
from posttrain.cli.page.windows import Later, Memory, RowQuestion, list_table
from posttrain.data.schemas import ROLLOUTS
from posttrain.pipeline.execution.display import Display, NotedProgress, read_progress
from posttrain.provenance.lineage.tables import Table
from posttrain.stage.errors import UserError

BROKEN = "\N{REPLACEMENT CHARACTER}"
# Tokens 1 and 2 are the two bytes of one letter, 3 is a word, 4 a byte without its other.
TEXTS = {(1,): BROKEN, (1, 2): "é", (2,): BROKEN, (3,): "so", (4,): BROKEN, (4, 3): f"{BROKEN}so"}


def decode(ids):
    return TEXTS.get(tuple(ids), BROKEN)


def test_bytes_of_one_letter_are_shown_at_the_last_of_them():
    assert token_texts([3, 1, 2, 3], decode) == ["so", "", "é", "so"]
    assert token_texts([4, 3], decode) == [BROKEN, "so"]
    assert token_texts([3, 1], decode) == ["so", BROKEN]
    assert token_texts([7, 8], None) == ["7 ", "8 "]


def test_what_is_known_of_drawn_tokens_goes_by_their_order_over_all_turns():
    """Turn 0: one read, two drawn; turn 1: one read, one drawn by a later policy."""
    row = {
        "role": "policy", "trained": True, "token_ids": [3, 3, 3, 3, 3],
        "spans": [
            {"begin": 0, "end": 1, "turn": 0, "drawn": False},
            {"begin": 1, "end": 3, "turn": 0, "drawn": True},
            {"begin": 3, "end": 4, "turn": 1, "drawn": False},
            {"begin": 4, "end": 5, "turn": 1, "drawn": True},
        ],
        "logprobs": [-1.0, -2.0, -3.0], "advantages": [0.1, 0.2, 0.3], "token_rewards": [],
        "versions": [7, 8], "turns": [{"earned": 0.5, "key": ""}, {"earned": 1.5, "key": ""}],
    }  # fmt: skip
    read, first, heard, second = spans_by_token(row, decode)
    assert [span.drawn for span in (read, first, heard, second)] == [False, True, False, True]
    assert read.tokens == (RolloutToken(3, "so"),)
    assert (read.learned, read.version, read.earned) == (False, None, None)
    assert first.tokens == (RolloutToken(3, "so", -1.0, 0.1), RolloutToken(3, "so", -2.0, 0.2))
    assert (first.learned, first.version, first.earned) == (True, 7, 0.5)
    assert second.tokens == (RolloutToken(3, "so", -3.0, 0.3),)
    assert (second.version, second.earned) == (8, 1.5)
    *_, last = spans_by_token(row | {"entropies": [0.5, 0.6, 0.7]}, decode)
    assert last.tokens == (RolloutToken(3, "so", -3.0, 0.3, entropy=0.7),)


@pytest.mark.parametrize("name", ["pairs", "problems", "rollouts"])
def test_tables_of_older_formats_are_listed_as_they_are(name):
    file = Path(__file__).parents[2] / f"data/tables_0_1/{name}.parquet"
    listed = list_table(Table(name, name, file), name)
    rows = listed.window(listed.numbers(RowQuestion(sort="id")), 0, 100)
    ids = [row[-1] for row in rows]
    assert ids == sorted(pl.read_parquet(file)["id"])


def test_a_table_without_rows_is_listed(tmp_path):
    file = tmp_path / "rollouts.parquet"
    pl.DataFrame(schema=ROLLOUTS).write_parquet(file)
    listed = list_table(Table("a", "a", file), "rollouts")
    numbers = listed.numbers(RowQuestion(search="so", sort="reward"))
    assert (listed.num_rows, listed.choices(), listed.window(numbers, 0, 10)) == (0, {}, [])


def test_a_costly_result_is_made_once_whoever_asks():
    made = []
    later = Later(lambda: made.append(1) or len(made))
    assert not later.done
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: later.result(), range(8))) == {1}
    assert later.done


def test_what_was_used_last_is_kept():
    made = []
    memory = Memory(2)
    for key in "abacab":
        memory.get(key, lambda key=key: made.append(key))
    # `b` gave way to `c`, as `a` had been asked for since.
    assert made == ["a", "b", "c", "b"]


def test_a_run_notes_what_it_is_at_and_forgets_what_is_over(tmp_path):
    told = []

    class Told(Display):
        def progress(self, stage, done, total, unit):
            told.append((stage, done, total, unit))

        def noted(self, stage, line):
            told.append((stage, line))

    noted = NotedProgress(Told(), tmp_path / "run")
    assert read_progress(tmp_path / "run") == {}
    noted.started("rl", ["it never ran", "it is asked for"])
    noted.progress("rl", 3, 10, "step")
    # Once a second, not at every step.
    assert read_progress(tmp_path / "run")["rl"].keys() == {"began", "reason"}
    noted.started("sft", [])
    found = read_progress(tmp_path / "run")
    assert found["rl"] | {"began": 0} == {
        "began": 0, "reason": "it never ran", "done": 3, "total": 10, "unit": "step",
    }  # fmt: skip
    noted.noted("rl", "resuming after step 3 of 10")
    noted.finished("rl", "succeeded", 1.0)
    assert read_progress(tmp_path / "run").keys() == {"sft"}
    assert told == [("rl", 3, 10, "step"), ("rl", "resuming after step 3 of 10")]


def test_a_run_goes_on_where_nothing_can_be_noted(tmp_path):
    (tmp_path / "file").write_text("")
    NotedProgress(Display(), tmp_path / "file").started("rl", [])


def table(folder, name, **columns):
    file = folder / f"{name}.parquet"
    pl.DataFrame(columns).write_parquet(file)
    return Table(name, name, file)


def test_integers_fall_into_bins_of_whole_numbers(tmp_path):
    # 0 to 59 twenty times, in 24 bins: each holds 3 numbers, 60 values, and 20 bins are enough.
    values = [number % 60 for number in range(1200)]
    (spread,) = spreads_of(table(tmp_path, "a", x=values))
    assert list(spread.counts) == [60] * 20
    assert spread.labels[:2] == ["from 0", "from 3"]
    assert spread.ends == ("0", "59")


def test_tables_are_compared_by_ids_and_by_the_columns_that_both_have(tmp_path):
    before = table(tmp_path, "a", id=["x", "y", "z", "z"], score=[1.0, None, 3.0, 3.0], old=[0] * 4)
    after = table(tmp_path, "b", id=["w", "y", "z"], score=[0.5, 2.0, 3.0], new=["?"] * 3)
    found = differing_rows(before, after, most=5)
    assert (found.num_before, found.num_after) == (4, 3)
    assert (found.num_same, found.num_added, found.num_removed) == (1, 1, 1)
    (changed,) = found.changed
    assert (changed.id, changed.before, changed.after) == ("y", 1, 1)
    assert changed.values == [("score", None, 2.0)]
    assert found.columns == [("score", 1), ("new", 0), ("old", 0)]
    assert found.added == [{"number": 0, "row": {"id": "w", "score": 0.5, "new": "?"}}]


def test_a_table_without_ids_is_not_compared(tmp_path):
    other = table(tmp_path, "a", step=[1])
    with pytest.raises(UserError, match="has no ids"):
        differing_rows(other, other, most=5)
