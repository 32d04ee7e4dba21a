"""Rollouts wait to be laid out as a table; when that is done shows in no byte."""

import random

import polars as pl
import pytest

from posttrain.data.schemas import ROLLOUTS, row_id
from posttrain.data.tables import read_table, write_table
from posttrain.learning.rl import store
from posttrain.learning.rl.rollout import Rollout, grouped, rollouts_table, stored_groups
from posttrain.learning.rl.store import RolloutStore


def rollout(source, index):
    length = source.randint(1, 9)
    return Rollout(
        problem_id=f"{source.randrange(16**16):016x}",
        source=source.choice(["sums", "ünicode"]),
        group=index // 3,
        prompt_ids=tuple(source.randrange(50_000) for _ in range(source.randint(1, 5))),
        completion_ids=tuple(source.randrange(50_000) for _ in range(length)),
        logprobs=tuple(-source.random() for _ in range(length)),
        finish_reason=source.choice(["stop", "length"]),
        text=source.choice(["", "a\n", "1 + 1 = 2"]),
        reward=float(source.random() < 0.5),
        reward_components='{"verifier": 1.0}',
        policy_version=source.randrange(3),
        advantage=source.gauss(0.0, 1.0),
        trained=source.random() < 0.5,
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
                "step": step,
                "parents": [each.problem_id],
                "id": row_id(each.problem_id, step, each.policy_version, each.completion_ids),
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
        assert kept.merge(folder / "rollouts.parquet", learnt=3) == 36
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
    kept.merge(tmp_path / "rollouts.parquet", learnt=2)
    table = read_table(tmp_path / "rollouts.parquet", ROLLOUTS)
    steps = dict(stored_groups(table))
    assert steps.keys() == {1, 2}
    assert [r.completion_ids for g in steps[2] for r in g] == [
        r.completion_ids for g in drawn(4) for r in g
    ]
