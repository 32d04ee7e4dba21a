"""Checkpoints that a thread writes: what they hold, how many stay, and what stops the run."""

import errno
import threading
from contextlib import closing

import pytest
import torch

from posttrain.learning.models import checkpoint
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.checkpoints_config import CheckpointsConfig
from posttrain.learning.models.stored_tensors import (
    StoredTensors,
    TensorPiece,
    TensorsApart,
    put_together,
    whole_piece,
    write_tensors,
)


@pytest.fixture
def held(monkeypatch):
    """A disk on which nothing gets done before the event is set."""
    go, flush = threading.Event(), checkpoint.flush

    def slow(path):
        assert go.wait(20)
        flush(path)

    monkeypatch.setattr(checkpoint, "flush", slow)
    yield go
    go.set()


def names(keeper):
    return sorted(path.name for path in keeper.folder.iterdir())


def test_what_changes_while_it_is_written_is_not_in_it(held, tmp_path):
    weights, rows = torch.ones(3), [(1, "loss", 0.5)]
    (tmp_path / "shard").write_text("of step 5")
    with closing(Checkpointer(tmp_path, every=5)) as keeper:
        files = {"shard": tmp_path / "shard"}
        keeper.save(5, {"model": {"w": weights}, "curve": {"rows": rows}}, files=files)
        assert names(keeper) == ["draft-000000005"]
        weights.zero_()
        rows.append((2, "loss", 0.25))
        (tmp_path / "shard").write_text("of step 6")
        held.set()
    found = keeper.load()
    assert found.states["model"]["w"].tolist() == [1.0, 1.0, 1.0]
    assert found.states["curve"]["rows"] == [(1, "loss", 0.5)]
    assert found.file("shard").read_text() == "of step 5"


def test_the_next_one_waits_for_the_one_before(held, tmp_path):
    with closing(Checkpointer(tmp_path, every=5)) as keeper:
        keeper.save(5, {"x": torch.ones(2)})
        second = threading.Thread(target=keeper.save, args=(10, {"x": torch.ones(2)}))
        second.start()
        second.join(0.2)
        assert names(keeper) == ["draft-000000005"]
        held.set()
        second.join()
    assert names(keeper) == ["step-000000005", "step-000000010"]


def test_a_full_disk_stops_the_run_and_the_one_before_stays_in_force(monkeypatch, tmp_path):
    def full(_path):
        raise OSError(errno.ENOSPC, "No space left on device")

    keeper = Checkpointer(tmp_path, every=5)
    keeper.save(5, {"x": torch.ones(2)})
    keeper.wait()
    monkeypatch.setattr(checkpoint, "flush", full)
    keeper.save(10, {"x": torch.zeros(2)})
    with pytest.raises(OSError, match="No space left"):
        keeper.wait()
    keeper.raise_failed()  # once is enough
    assert keeper.load().step == 5


def test_steps_that_save_nothing_hear_of_it_too(monkeypatch, tmp_path):
    failed = threading.Event()

    def broken(*_arguments, **_named):
        failed.set()
        raise OSError("the disk is gone")

    keeper = Checkpointer(tmp_path, every=5)
    monkeypatch.setattr(checkpoint, "write_tensors", broken)
    keeper.save(5, {})
    assert failed.wait(20)

    def steps():
        while True:
            keeper.raise_failed()

    with pytest.raises(OSError, match="the disk is gone"):
        steps()


# A checkpoint of 2,000 numbers of 4 bytes: 8 kB, and the rest of it takes less than 2 kB.
@pytest.mark.parametrize(
    ("budget", "dropped"),
    [("40kB", []), ("21kB", [5, 10]), ("12kB", [5, 10, 15]), ("1kB", [5, 10, 15])],
)
def test_a_budget_drops_the_oldest_and_says_so_but_never_the_newest(tmp_path, budget, dropped):
    notes = []
    config = CheckpointsConfig(keep=3, budget=budget)
    with closing(Checkpointer(tmp_path, every=5, config=config, note=notes.append)) as keeper:
        for step in (5, 10, 15, 20):
            keeper.save(step, {"x": torch.ones(2_000)})
    # At the last save the number alone drops step 5, of which nothing is said.
    left = [step for step in (10, 15, 20) if step not in dropped]
    assert names(keeper) == [f"step-{step:09d}" for step in left]
    assert [note.split()[1] for note in notes] == [f"step-{step:09d}" for step in dropped]
    assert all(f"learner.checkpoints.budget is {budget[:-2]} kB" in note for note in notes)
    assert keeper.load().step == 20


def test_without_room_for_a_copy_the_step_waits(held, monkeypatch, tmp_path):
    notes = []
    held.set()
    monkeypatch.setattr(checkpoint, "free_memory", lambda _device: 15_999)
    keeper = Checkpointer(tmp_path, every=5, note=notes.append)
    keeper.save(5, {"x": torch.ones(2_000)})
    assert names(keeper) == ["step-000000005"]
    assert notes == [
        "the checkpoint of step 5 is written while the step waits: a copy of it takes 8 kB, more"
        " than half of the 16 kB that are free"
    ]
    monkeypatch.setattr(checkpoint, "free_memory", lambda _device: 16_000)
    keeper.save(10, {"x": torch.ones(2_000)})
    keeper.wait()
    assert len(notes) == 1


def test_a_tied_weight_is_written_once_and_read_in_both_places(tmp_path):
    embedding = torch.arange(6.0).reshape(3, 2)
    apart = TensorsApart(whole_piece)
    state = apart.take({"in": embedding, "out": embedding, "row": embedding[0]}, "model")
    assert sorted(apart.pieces) == ["model/in", "model/row"]
    write_tensors(tmp_path, apart.pieces)
    read = put_together(state, StoredTensors(tmp_path).whole)
    assert torch.equal(read["in"], embedding)
    assert torch.equal(read["out"], embedding)
    assert read["row"].tolist() == [0.0, 1.0]


def test_rows_are_found_in_whatever_files_they_are(tmp_path):
    rows = torch.arange(10.0).reshape(5, 2)
    for rank, (first, last) in enumerate([(0, 2), (2, 4), (4, 5), (5, 5)]):
        write_tensors(tmp_path, {"w": TensorPiece(rows[first:last], (5, 2), first)}, rank=rank)
    stored = StoredTensors(tmp_path).stored("w")
    assert (stored.shape, stored.dtype) == ((5, 2), torch.float32)
    assert torch.equal(stored.rows(), rows)
    for first, last in [(0, 3), (1, 5), (3, 4), (5, 5)]:
        assert torch.equal(stored.rows(first, last), rows[first:last])
