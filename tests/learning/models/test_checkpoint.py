import collections
import random
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.stage.errors import UserError


@pytest.fixture
def keeper(tmp_path):
    return Checkpointer(tmp_path, every=5)


def test_what_was_saved_comes_back(keeper, tmp_path):
    (tmp_path / "rows.txt").write_text("kept")
    states = {"model": {"w": torch.tensor([1.5, -2.0])}, "curve": {"rows": [(1, "loss", 0.5)]}}
    keeper.save(5, states, facts={"version": 3}, files={"rows.txt": tmp_path / "rows.txt"})
    snapshot = keeper.load()
    assert snapshot.step == 5
    assert torch.equal(snapshot.states["model"]["w"], torch.tensor([1.5, -2.0]))
    assert snapshot.states["curve"] == {"rows": [(1, "loss", 0.5)]}
    assert snapshot.facts == {"version": 3}
    assert snapshot.file("rows.txt").read_text() == "kept"


def test_nothing_saved_is_nothing_loaded(keeper):
    assert keeper.load() is None


def test_a_checkpoint_is_due_every_so_many_steps(tmp_path):
    assert [step for step in range(12) if Checkpointer(tmp_path, every=5).due(step)] == [5, 10]
    assert not any(Checkpointer(tmp_path, every=0).due(step) for step in range(12))


def test_the_newest_is_loaded_and_older_ones_are_pruned(keeper):
    for step in (5, 10, 15):
        keeper.save(step, {"x": {"step": step}})
    assert keeper.load().states["x"] == {"step": 15}
    assert sorted(path.name for path in keeper.folder.iterdir()) == [
        "step-000000010",
        "step-000000015",
    ]


@pytest.mark.parametrize("damage", ["cut", "flip", "lose", "manifest"])
def test_a_damaged_one_is_skipped_with_a_note(tmp_path, damage):
    notes = []
    keeper = Checkpointer(tmp_path, every=5, note=notes.append)
    keeper.save(5, {"x": {"step": 5}})
    keeper.save(10, {"x": {"step": 10}})
    newest = keeper.folder / "step-000000010"
    keeper.wait()
    state = newest / "x.pt"
    content = state.read_bytes()
    if damage == "cut":
        state.write_bytes(content[:-1])
    elif damage == "flip":
        state.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    elif damage == "lose":
        state.unlink()
    else:
        (newest / "manifest.json").write_text("{")
    assert keeper.load().step == 5
    assert notes == ["checkpoint step-000000010 is damaged and was skipped"]


def test_a_draft_left_by_a_kill_is_neither_loaded_nor_in_the_way(keeper):
    keeper.save(5, {"x": {"step": 5}})
    draft = keeper.folder / "draft-000000010"
    (draft / "files").mkdir(parents=True)
    (draft / "x.pt").write_bytes(b"half")
    assert keeper.load().step == 5
    keeper.save(10, {"x": {"step": 10}})
    assert keeper.load().step == 10


def test_another_identity_is_refused_by_name(tmp_path):
    with closing(
        Checkpointer(tmp_path, every=5, identity={"config": "aa", "data": "bb"})
    ) as keeper:
        keeper.save(5, {})
    with pytest.raises(UserError, match="made with data=bb, now it is cc"):
        Checkpointer(tmp_path, every=5, identity={"config": "aa", "data": "cc"}).load()


def test_a_pickle_that_would_run_code_is_not_executed(keeper):
    class Trap:
        def __reduce__(self):
            return (print, ("executed",))

    keeper.save(5, {"x": {"trap": Trap()}})
    with pytest.raises(Exception, match="[Ww]eights.only"):
        keeper.load()


Place = collections.namedtuple("Place", "row")


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, 10**40, 0.5, 1j, "a", b"a", bytearray(b"a")),
        *(torch.ones(2), torch.nn.Parameter(torch.ones(1)), torch.ones(2).shape, torch.float32),
        *([1], (1, 2), {1}, {"a": [1]}, {1: "a", (1, None): 2}),
        *(collections.OrderedDict(a=1), collections.Counter("aa"), collections.defaultdict(int)),
        *(frozenset({1}), collections.deque([1]), range(3), Place(1), slice(1), Path("a")),
        *(np.float64(0.5), np.int64(3), np.ones(2), {np.int64(3): 1}, [{"a": (np.bool_(True),)}]),
    ],
    ids=repr,
)
def test_a_state_is_refused_when_it_is_saved_or_it_can_be_read_back(keeper, value):
    keeper.owners = {"mine": "rl: problem_sampler.mine"}
    try:
        keeper.save(1, {"mine": {"state": value}})
    except UserError:
        assert keeper.load() is None
        return
    read = keeper.load().states["mine"]["state"]
    assert type(read) is type(value)
    assert torch.equal(read, value) if isinstance(value, torch.Tensor) else read == value


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"counts": [3, np.int64(4)]}, "a numpy.int64 at ['counts'][1]"),
        ({np.int64(4): 3}, f"a numpy.int64 at the key [{np.int64(4)!r}]"),
        (collections.deque(), "a collections.deque at its top"),
        ({"generator": random.Random(3)}, "a random.Random at ['generator']"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_named_with_its_owner(keeper, state, said):
    keeper.owners = {"mine": "rl: problem_sampler.mine"}
    with pytest.raises(UserError) as caught:
        keeper.save(1, {"mine": state, "other": 1})
    assert str(caught.value) == (
        f"rl: problem_sampler.mine: `state_dict` holds {said}, which a checkpoint cannot hold; let"
        " it give plain numbers, texts, lists, tuples, dicts and tensors"
    )
    assert keeper.load() is None
    keeper.save(1, {"other": 1})
