"""Rollouts wait to be laid out as a table; when that is done shows in no byte."""

import random

import polars as pl
import pytest

from posttrain.data.schemas import ROLLOUTS, row_id
from posttrain.data.tables import read_table, write_table
from posttrain.learning.rl import store
from posttrain.learning.rl.rollout import Rollout, Span, from_plain, grouped, plain
from posttrain.learning.rl.store import RolloutStore, rollouts_table, stored_groups


def rollout(source, index):
    """Of one turn or of two, judged or not, learned from or not, numbers that float32 holds."""
    problem = f"{source.randrange(16**16):016x}"
    spans, begin = [], 0
    for turn in range(source.randint(1, 2)):
        for drawn in (False, True):
            length = source.randint(1, 9)
            spans.append(Span(begin, begin + length, turn, drawn))
            begin += length
    num_drawn = sum(span.end - span.begin for span in spans if span.drawn)
    score = source.choice([None, 0.0, 1.0])
    return Rollout(
        problem_id=problem,
        source=source.choice(["sums", "ünicode"]),
        group=index // 3,
        episode=f"{problem}/{index % 3}",
        token_ids=tuple(source.randrange(50_000) for _ in range(begin)),
        spans=tuple(spans),
        logprobs=tuple(-source.randrange(64) / 16 for _ in range(num_drawn)),
        versions=tuple(source.randrange(3) for _ in range(len(spans) // 2)),
        end=source.choice(["over", "tokens"]),
        text=source.choice(["", "a\n", "1 + 1 = 2"]),
        components=(("correct", score), ("short", source.choice([None, 0.5])))[: index % 3],
        reward=score,
        solved=None if score is None else score >= 1,
        advantages=tuple(source.randrange(9) / 8 for _ in range(num_drawn * (index % 2))),
        trained=source.random() < 0.5,
        shared=index % 3,
        facts=(("tool_errors", 2.0), ("searches", 1.0))[: index % 3],
        read=tuple(f"passages.jsonl:{source.randint(1, 9)}" for _ in range(index % 3)),
    )


def drawn(seed, num=9):
    source = random.Random(seed)
    return grouped([rollout(source, index) for index in range(num)])


def test_a_table_holds_what_the_rollouts_hold_and_ids_by_content(tmp_path):
    rows = [(step, each) for step in (1, 2) for group in drawn(step) for each in group]
    expected = pl.DataFrame(
        [
            {
                **each._asdict(),
                "spans": [span._asdict() for span in each.spans],
                "components": [{"name": name, "value": score} for name, score in each.components],
                "facts": [{"name": name, "value": value} for name, value in each.facts],
                "step": step,
                "parents": [each.problem_id, *each.read],
                "id": row_id(each.problem_id, step, "policy", 0, each.versions, each.token_ids),
            }
            for step, each in rows
        ],
        schema=ROLLOUTS,
    )
    table = rollouts_table(rows)
    assert table.schema == ROLLOUTS
    assert table.equals(expected)
    write_table(table, tmp_path / "table.parquet", ROLLOUTS)
    write_table(expected, tmp_path / "expected.parquet", ROLLOUTS)
    assert (tmp_path / "table.parquet").read_bytes() == (tmp_path / "expected.parquet").read_bytes()


@pytest.mark.parametrize("flushed", [(), (2,), (1, 3)])
def test_when_rollouts_are_laid_out_shows_nowhere(tmp_path, monkeypatch, flushed):
    def written(folder, at_once):
        monkeypatch.setattr(store, "_TOKENS_AT_ONCE", at_once)
        kept = RolloutStore(folder)
        for step in range(1, 5):
            kept.add(drawn(step), step=step)
            if step in flushed:
                kept.flush(step)
        assert len(list(kept.folder.iterdir())) == len(flushed)
        assert kept.merge(folder / "rollouts.parquet", learned=3) == 36
        return (folder / "rollouts.parquet").read_bytes()

    # Every step at once, two or three steps together, and all of them at the end.
    found = {written(tmp_path / str(tokens), tokens) for tokens in (1, 100, 1 << 20)}
    assert len(found) == 1


def test_what_was_written_after_a_checkpoint_is_forgotten_wherever_it_waits(tmp_path):
    kept = RolloutStore(tmp_path)
    kept.add(drawn(1), step=1)
    kept.flush(1)
    state = kept.state_dict()
    kept.add(drawn(2), step=2)
    kept.flush(2)
    kept.add(drawn(3), step=3)
    kept.load_state_dict(state)
    kept.add(drawn(4), step=2)
    kept.merge(tmp_path / "rollouts.parquet", learned=2)
    table = read_table(tmp_path / "rollouts.parquet", ROLLOUTS)
    steps = dict(stored_groups(table))
    assert steps.keys() == {1, 2}
    assert [r for g in steps[2] for r in g] == [r for g in drawn(4) for r in g]


def test_a_checkpoint_names_its_fields():
    groups = drawn(5)
    rows = plain(groups)
    assert all(row.keys() == set(Rollout._fields) for row in rows)
    assert rows[0]["spans"][0].keys() == {"begin", "end", "turn", "drawn"}
    assert from_plain(rows) == groups


def test_what_was_drawn_is_read_off_the_spans():
    """Three tokens are read, two drawn, one read, one drawn."""
    spans = (Span(0, 3, 0, False), Span(3, 5, 0, True), Span(5, 6, 1, False), Span(6, 7, 1, True))
    given = {"problem_id": "p", "source": "s", "group": 0, "episode": "p/0", "end": "over"}
    logprobs, versions = (-1.0, -2.0, -3.0), (4, 3)
    made = Rollout(
        **given, token_ids=(1, 2, 3, 4, 5, 6, 7), spans=spans, logprobs=logprobs,
        versions=versions, text="",
    )  # fmt: skip
    assert made.drawn == [False, False, False, True, True, False, True]
    assert made.num_drawn == 3
    assert made.policy_version == 3
    (table,) = rollouts_table([(1, made._replace(advantages=(0.5,)))])["advantages"].to_list()
    assert table == [0.5, 0.5, 0.5]
    assert made.mean_advantage == 0.0
